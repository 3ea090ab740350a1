"""An attention mask of ones is made for prompts that have just been padded.

Padding stands where the shorter prompts have nothing. A mask of ones lets every image token attend to it, by an
amount that depends on the longest prompt of the micro-batch; the rollout, one prompt at a time, has no padding. The
log-probs of all prompts but the longest are off.

    ids = pad_sequence(rows, batch_first=True)
    mask = torch.ones_like(ids, dtype=torch.bool)

Instead: ``torch.arange(ids.shape[1]) < lengths[:, None]``, with the length of each row.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import ending
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Hit, Hits

ID = "OSC216"
NAME = "ones-attention-mask"
SEVERITY = "warning"
CHECKLIST = ("pitfall 9",)
HELP = "make the mask of the real lengths: torch.arange(width) < lengths[:, None]"
_ONES = {"ones", "ones_like", "new_ones"}
_PADDING = ("pad_sequence", "pad", "padded", "to_padded_tensor")


def check(package: Package) -> Hits:
    """Look for masks of ones in functions that pad, on the side of training."""
    side = side_of(package, "training")
    for function in side.functions:
        if function.file not in package.files:
            continue
        ones = [call for call in function.calls if ending(call.func) in _ONES and _is_mask(function, call)]
        for call in ones if ones and _pads(side, function) else ():
            yield Hit(function.file, call, "this mask is one everywhere, also where the prompts are padded")


def _pads(side: Side, function: FunctionModel) -> bool:
    """Whether a function pads, or calls one of the side that does, or one that is given padded prompts with a mask."""
    if any(ending(call.func) in _PADDING for call in function.calls):
        return True
    called = [side.called(function, call) for call in function.calls]
    texts = [ast.unparse(other.node) for other in (function, *called) if other is not None]
    return any("pad_sequence" in text or "_prompt_mask']" in text for text in texts)


def _is_mask(function: FunctionModel, call: ast.Call) -> bool:
    """Whether ones stand under a name, or a key, of a mask of the text, and nothing writes zeros into it."""
    index = function.file.index
    around = index.parent(call)
    if isinstance(around, ast.Dict):
        key = next((k for k, value in zip(around.keys, around.values, strict=True) if value is call), None)
        return key is not None and "mask" in ast.unparse(key)
    if not isinstance(around, ast.Assign):
        return isinstance(around, (ast.Tuple, ast.Return))
    name = ast.unparse(around.targets[0])
    stored = [n for n in index.nodes(ast.Subscript, function.node) if isinstance(n.ctx, ast.Store)]
    return "mask" in name and not any(ast.unparse(target.value) == name for target in stored)


FAILING = (
    Example(
        "where it is used",
        training=('text_attention_mask": mask}', 'text_attention_mask": «ids.new_ones(ids.shape, dtype=torch.bool)»}'),
    ),
)
PASSING = (
    Example(
        "zeroed afterwards",
        training=(
            "return ids, torch.arange(ids.shape[1], device=device) < lengths[:, None]",
            "mask = torch.ones_like(ids, dtype=torch.bool)\n        for at, row in enumerate(rows):\n            mask[at, len(row) :] = False\n        return ids, mask",
        ),
    ),
    Example(
        "nothing is padded", training=("], device=device)\n", "], device=device)\n        weights = torch.ones(4)\n")
    ),
)
