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
from scaffold.check.model.calls import argument
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.left_out_masks import left_out_masks
from scaffold.check.model.package import Package
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.operators import OF_NUMBERS

ID = "OSC216"
NAME = "ones-attention-mask"
SEVERITY = "warning"
CHECKLIST = ("pitfall 9",)
APPLIES = Applies()
HELP = "make the mask from the lengths: torch.arange(ids.shape[1]) < lengths[:, None]"
_PADDING = {"torch.nn.utils.rnn.pad_sequence", "torch.nn.functional.pad", "torch.constant_pad_nd", "numpy.pad"}
_PAD = "torch.nn.utils.rnn.pad_sequence"
_MAKING = {"torch.zeros", "torch.full", "torch.empty", "torch.zeros_like", "torch.full_like"}


def check(package: Package) -> Hits:
    """Look at masks of ones whose shape comes from something padded."""
    side = side_of(package, "training")
    yield from _always(side)
    yield from _none(package, side)
    for function, node in left_out_masks(side):
        yield Hit(function.file, node, "prompts of different lengths are padded here, and no mask says where")
    for function in side.functions:
        for call in function.calls:
            if _of_ones(function, call) and _is_mask(function, call) and not _zeroed(function, call):
                if any(_padded(side, function, value) for value in _shape_of(call)):
                    yield Hit(function.file, call, "this mask is one everywhere, also where the prompts are padded")


def _none(package: Package, side: Side) -> Hits:
    """Look for padded prompts whose mask is None, whatever their lengths."""
    for adapter in side.adapters:
        inputs = package.model_inputs(adapter)
        method = adapter.method("prepare_model_inputs")
        if inputs is None or inputs[0] is None or method is None or method.file not in package.files:
            continue
        padded = any(f.file.qualified(c.func) == _PAD for f in side.functions for c in f.calls)
        for key, value in inputs[0].values.items() if padded else ():
            if "mask" not in key or inputs[0].nodes[key][0] is not method.file or isinstance(value, ast.Constant):
                continue
            found = origin(side, method, value)
            nodes = [(file, node) for _, file, node in found.nodes if not isinstance(node, ast.Name)]
            if found.complete and nodes and all(isinstance(n, ast.Constant) and n.value is None for _, n in nodes):
                yield Hit(*nodes[0], "the prompts are padded, and no mask says where")


def _always(side: Side) -> Hits:
    """Look at masks that compare padded ids with a number, where the padding passes as well."""
    for function in side.functions:
        for node in function.file.index.nodes(ast.Compare, function.node):
            compare = OF_NUMBERS.get(type(node.ops[0]))
            if len(node.ops) != 1 or compare is None or not isinstance(node.left, ast.Name):
                continue
            number = function.file.value(node.comparators[0])
            if not isinstance(number, int) or isinstance(number, bool) or not _is_mask(function, node):
                continue
            padding = _padding(side, function, node.left)
            if padding is not None and compare(padding, number):
                yield Hit(
                    function.file, node, f"the padding, {padding}, passes this test: the mask hides nothing of it"
                )


def _padding(side: Side, function: FunctionModel, value: ast.expr) -> int | None:
    """Return what a tensor certainly is padded with."""
    found: set[object] = set()
    for file, call in origin(side, function, value).calls():
        if file.qualified(call.func) == _PAD:
            given = argument(call, "padding_value", 2)
            found.add(0 if given is None else file.value(given))
    only = found.pop() if len(found) == 1 else None
    return int(only) if isinstance(only, (int, float)) else None


def _of_ones(function: FunctionModel, call: ast.Call) -> bool:
    name = function.file.qualified(call.func)
    if name in ("torch.ones", "torch.ones_like"):
        return True
    if name in ("torch.full", "torch.full_like"):
        values = [*call.args[1:2], *(item.value for item in call.keywords if item.arg == "fill_value")]
        return any(isinstance(value, ast.Constant) and value.value in (1, True) for value in values)
    return isinstance(call.func, ast.Attribute) and call.func.attr == "new_ones"


def _shape_of(call: ast.Call) -> list[ast.expr]:
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) and call.func.attr == "new_ones" else []
    return [*owner, *call.args, *(item.value for item in call.keywords if item.arg in ("size", "input"))]


def _is_mask(function: FunctionModel, call: ast.expr) -> bool:
    """Whether the ones go into something that is called a mask, or are returned beside padded ids."""
    index = function.file.index
    for outer in index.ancestors(call):
        if isinstance(outer, (ast.Assign, ast.AnnAssign)):
            targets = outer.targets if isinstance(outer, ast.Assign) else [outer.target]
            return any("mask" in ast.unparse(target).lower() for target in targets)
        if isinstance(outer, ast.keyword):
            return outer.arg is not None and "mask" in outer.arg
        if isinstance(outer, ast.Dict):
            pairs = zip(outer.keys, outer.values, strict=True)
            return any(
                key is not None and index.contains(value, call) and "mask" in ast.unparse(key) for key, value in pairs
            )
        if isinstance(outer, ast.Return):
            return isinstance(outer.value, ast.Tuple) and len(outer.value.elts) == 2
    return False


def _padded(side: Side, function: FunctionModel, value: ast.expr) -> bool:
    found = origin(side, function, value)
    if any(file.qualified(call.func) in _PADDING for file, call in found.calls()):
        return True
    # ``ids = torch.zeros(B, max(len(row) …))``, filled row by row.
    made = [(file, call) for file, call in found.calls() if file.qualified(call.func) in _MAKING]
    return any(
        isinstance(node, ast.Call) and file.qualified(node.func) == "max"
        for file, call in made
        for _, file, node in found.nodes
    )


def _zeroed(function: FunctionModel, call: ast.Call) -> bool:
    """Whether the mask is changed afterwards, or combined with another one."""
    index = function.file.index
    statement = index.parent(call)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    name = statement.targets[0].id
    for target in index.nodes(ast.Subscript, function.node):
        if isinstance(target.ctx, ast.Store) and isinstance(target.value, ast.Name) and target.value.id == name:
            return True
    for changed in index.nodes(ast.Call, function.node):
        owner = changed.func.value if isinstance(changed.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id == name and isinstance(changed.func, ast.Attribute):
            if changed.func.attr.startswith(("masked_fill", "tril", "triu", "fill", "index_fill", "scatter")):
                return True
    return any(
        isinstance(item.target, ast.Name) and item.target.id == name
        for item in index.nodes(ast.AugAssign, function.node)
    )


FAILING = (
    Example(
        "no mask at all",
        training=("torch.arange(ids.shape[1], device=device) < lengths[:, None]", "«None»"),
        also="OSC119",
    ),
    Example(
        "a test that the padding passes",
        training=("torch.arange(ids.shape[1], device=device) < lengths[:, None]", "«ids >= 0»"),
    ),
    Example(
        "where it is used",
        training=('text_attention_mask": mask}', 'text_attention_mask": «ids.new_ones(ids.shape, dtype=torch.bool)»}'),
    ),
)
PASSING = (
    Example(
        "compared with the padding",
        training=(
            (
                ").to(device)\n        lengths = torch.tensor([len(row) for row in rows], device=device)\n        return ids, torch.arange(ids.shape[1], device=device) < lengths[:, None]"
            ),
            (
                ", padding_value=-1).to(device)\n        lengths = torch.tensor([len(row) for row in rows], device=device)\n        return ids, ids >= 0"
            ),
        ),
    ),
    Example(
        "zeroed afterwards",
        training=(
            "return ids, torch.arange(ids.shape[1], device=device) < lengths[:, None]",
            (
                "mask = torch.ones_like(ids, dtype=torch.bool)\n        for at, row in enumerate(rows):\n            mask[at, len(row) :] = False\n        return ids, mask"
            ),
        ),
    ),
    Example(
        "nothing is padded", training=("], device=device)\n", "], device=device)\n        weights = torch.ones(4)\n")
    ),
)
