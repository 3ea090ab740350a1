"""The prompts of a micro-batch are padded or masked in the wrong way.

A mask that says which tokens are real is true below each prompt's own length. With ``<=`` one padded token counts as
text in every short prompt, with ``>=`` only padding does; with one length for all nothing is masked. Padding on the left
moves every token to another position than in the rollout.

    mask = torch.arange(width) <= lengths[:, None]

Instead: ``torch.arange(width) < lengths[:, None]`` over ids that are padded on the right.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import keyword
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.streams import reads
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC226"
NAME = "wrong-prompt-padding"
SEVERITY = "error"
CHECKLIST = ("T4", "pitfall 8", "pitfall 9")
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
HELP = "pad on the right, batch first, and mask arange(length) < lengths[:, None]"
_MASK = "torch.arange(ids.shape[1], device=device) < lengths[:, None]"


def check(package: Package) -> Hits:
    """Look at padding and masks in what prepares the module's inputs."""
    side = side_of(package, "training")
    for function in side.functions:
        if function.file not in package.files:
            continue
        for call in function.calls:
            if (function.file.qualified(call.func) or "").endswith("rnn.pad_sequence"):
                yield from _padded(function, call)
        for node in function.file.index.nodes(ast.Compare, function.node):
            yield from _compared(function, node)
        yield from _foreign(side, function)


def _foreign(side: Side, function: FunctionModel) -> Hits:
    """Look for ids of the prompt beside the mask of the chat prompt, which is padded to another length."""
    for item in function.returns:
        pair = item.value.elts if isinstance(item.value, ast.Tuple) and len(item.value.elts) == 2 else []
        if not pair:
            continue
        words = origin(side, function, pair[0]).strings
        if "prompt_token_ids" not in words or words & {"prompts", "input_ids"}:
            continue
        for node in function.file.index.nodes(ast.Subscript, pair[1]):
            if function.file.value(node.slice) == "attention_mask":
                text = "this mask belongs to the chat prompts of the agent loop, not to prompt_token_ids"
                yield Hit(function.file, node, text)


def _padded(function: FunctionModel, call: ast.Call) -> Hits:
    place = keyword(call, "padding_side")
    if place is not None and function.file.value(place) == "left":
        yield Hit(
            function.file,
            place,
            "padding stands in front of the shorter prompts, and the module takes its tokens for the prompt's first",
        )
    first = keyword(call, "batch_first") or (call.args[1] if len(call.args) > 1 else None)
    transposed = isinstance(function.file.index.parent(call), ast.Attribute) and ast.unparse(function.node).count(
        "transpose("
    )
    if (
        (first is None or function.file.value(first) is False)
        and not transposed
        and "[::-1]" not in ast.unparse(function.node)
    ):
        yield Hit(function.file, call, "the batch is no longer the first dimension; give batch_first=True")


def _compared(function: FunctionModel, node: ast.Compare) -> Hits:
    """Look at ``arange(width) op lengths`` where the answer is a mask."""
    if len(node.ops) != 1 or not _is_mask(function, node):
        return
    left, right = _is_range(function, node.left), _is_range(function, node.comparators[0])
    lengths = node.comparators[0] if left else node.left
    if left == right or "len" not in ast.unparse(lengths).lower():
        return
    op = type(node.ops[0])
    turned: dict[type[ast.cmpop], type[ast.cmpop]] = {
        ast.Gt: ast.Lt,
        ast.GtE: ast.LtE,
        ast.Lt: ast.Gt,
        ast.LtE: ast.GtE,
    }
    op = op if left else turned.get(op, op)
    if op is ast.LtE:
        yield Hit(function.file, node, "one token behind the end of each prompt counts as real")
    elif op in (ast.GtE, ast.Gt):
        yield Hit(function.file, node, "the mask is true at the padding, not at the real tokens")
    elif op is ast.Lt and isinstance(lengths, ast.Call) and function.file.qualified(lengths.func) == "max":
        yield Hit(function.file, lengths, "all prompts get the mask of the longest")


def _is_range(function: FunctionModel, value: ast.expr) -> bool:
    while True:
        if isinstance(value, (ast.Subscript, ast.Attribute)):
            value = value.value
        elif (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and function.file.qualified(value.func) != "torch.arange"
        ):
            value = value.func.value
        else:
            break
    if isinstance(value, ast.Name):
        bound = [binding.value for binding in function.file.scopes.lookup(value.id, value)]
        return (
            len(bound) == 1
            and bound[0] is not None
            and not isinstance(bound[0], ast.Name)
            and _is_range(function, bound[0])
        )
    return isinstance(value, ast.Call) and function.file.qualified(value.func) == "torch.arange"


def _is_mask(function: FunctionModel, node: ast.Compare) -> bool:
    """Whether a comparison is handed on as it is: returned, or kept under the name of a mask."""
    index = function.file.index
    for outer in index.ancestors(node):
        if isinstance(outer, (ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.If, ast.IfExp)):
            return False
        if isinstance(outer, ast.Call) and not (
            isinstance(outer.func, ast.Attribute) and index.contains(outer.func, node)
        ):
            return False
        if isinstance(outer, ast.Return):
            return True
        if isinstance(outer, (ast.Assign, ast.AnnAssign)):
            targets = outer.targets if isinstance(outer, ast.Assign) else [outer.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            pads = any("pad" in name.lower() for name in names)
            inverted = any(
                isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.Invert) and reads(n, set(names))
                for n in function.nodes(ast.UnaryOp)
            )
            return any("mask" in name.lower() for name in names) and not pads and not inverted
        if isinstance(outer, ast.stmt):
            return False
    return False


FAILING = (
    Example(
        "the mask of another column",
        {"training": [(_MASK, '«micro_batch["attention_mask"]»[:, : ids.shape[1]].to(device, torch.bool)')]},
        also=("OSC134",),
    ),
    Example(
        "one token too many", {"training": [(_MASK, "«torch.arange(ids.shape[1], device=device) <= lengths[:, None]»")]}
    ),
    Example("upside down", {"training": [(_MASK, "«torch.arange(ids.shape[1], device=device) >= lengths[:, None]»")]}),
    Example(
        "the other way round",
        {"training": [(_MASK, "«lengths[:, None] >= torch.arange(ids.shape[1], device=device)»")]},
    ),
    Example("on the left", {"training": [("batch_first=True)", 'batch_first=True, padding_side=«"left"»)')]}),
    Example(
        "length first",
        {
            "training": [
                ("torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)", "«torch.nn.utils.rnn.pad_sequence(rows)»")
            ]
        },
    ),
)
PASSING = (
    Example("on the right"),
    Example(
        "the padding itself",
        {
            "training": [
                (
                    "return ids, " + _MASK,
                    "padding = torch.arange(ids.shape[1], device=device) >= lengths[:, None]\n        return ids, ~padding",
                )
            ]
        },
    ),
)
