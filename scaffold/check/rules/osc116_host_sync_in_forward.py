"""``forward`` waits for the device: ``.item()``, ``nonzero``, indexing with a mask, a tensor in an ``if``.

Each of them stops the host until everything queued has run, in every layer of every step. A training step ran at 0.31
to 0.38 of the matrix rate where slices reached 0.49 to 0.52. What a run reads back, `verify` counts
(``host-synchronisation``).

    index = text_mask.nonzero(as_tuple=True)
    if bool(mask.all()): …

Instead: slices, ``torch.where``, and lengths that are known on the host.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import ending
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC116"
NAME = "host-sync-in-forward"
SEVERITY = "warning"
CHECKLIST = ("M5", "pitfall 42")
APPLIES = Applies(non_diffusers=True)
HELP = "work with slices, torch.where and lengths that are known on the host"
_METHODS = {"item", "tolist", "cpu", "numpy", "nonzero", "masked_select", "unique", "unique_consecutive"}
_FUNCTIONS = {"torch.nonzero", "torch.argwhere", "torch.masked_select", "torch.unique", "torch.unique_consecutive"}
_REDUCTIONS = {"any", "all", "sum", "max", "min", "amax", "amin", "equal", "allclose"}
_MODULES = ("np", "math", "F", "torch")


def check(package: Package) -> Hits:
    """Look at all code that ``forward`` reaches, except what builds modules, and what is ported from upstream.

    What the ported denoiser reads back it reads back in the rollout, too; `verify` counts the places.
    """
    written = package.written_files
    for function in package.forward_functions:
        if function.file not in written:
            continue
        index = function.file.index
        for call in function.calls:
            if (what := _waits(function, call)) is not None:
                yield Hit(function.file, call, f"{what} waits for the device")
        for part in index.nodes(ast.Subscript, function.node):
            if isinstance(part.slice, (ast.Name, ast.Attribute)) and ending(part.slice).lower().endswith("mask"):
                text = f"indexing with the mask {ast.unparse(part.slice)} waits for the device"
                yield Hit(function.file, part, text)
        for kind in (ast.If, ast.IfExp, ast.While, ast.Assert):
            for statement in index.nodes(kind, function.node):
                for call in _tested(statement.test):  # type: ignore[attr-defined]
                    yield Hit(function.file, call, f"a test of {ast.unparse(call)} waits for the device")


def _waits(function: FunctionModel, call: ast.Call) -> str | None:
    name = function.file.qualified(call.func)
    if name in _FUNCTIONS or (name is not None and name.startswith("torch.") and name.endswith(".synchronize")):
        return f"{name}()"
    if name == "torch.where" and len(call.args) == 1 and not call.keywords:
        return "torch.where() with one argument"
    if name in ("bool", "int", "float") and len(call.args) == 1 and _reduces(call.args[0]):
        return f"{name}({ast.unparse(call.args[0])})"
    if name is None and isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
        return f".{call.func.attr}()"
    return None


def _reduces(call: ast.expr) -> bool:
    """Whether a call gives one number or truth value of a tensor; with a dimension it gives a tensor."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _REDUCTIONS:
        return False
    if isinstance(call.func.value, ast.Name) and call.func.value.id in _MODULES:
        return call.func.value.id == "torch"
    return not call.args and not any(item.arg in ("dim", "axis") for item in call.keywords)


def _tested(test: ast.expr) -> list[ast.Call]:
    """Return the reductions whose result a test asks for as it is."""
    if isinstance(test, ast.BoolOp):
        return [call for value in test.values for call in _tested(value)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _tested(test.operand)
    if isinstance(test, ast.Compare):
        return [call for value in (test.left, *test.comparators) for call in _tested(value)]
    return [test] if isinstance(test, ast.Call) and _reduces(test) else []


FAILING = (
    Example("synchronize", model=("latent_pos_ids)\n", "latent_pos_ids)\n        «torch.accelerator.synchronize()»\n")),
    Example("in a layer", model=("context.shape[1]", "«int(key_mask.sum())»")),
)
PASSING = (Example("sizes are known on the host", model=("context.shape[1]", "int(context.size(1))")),)
