"""``forward`` waits for the device: ``.item()``, ``nonzero``, indexing with a mask, a tensor in an ``if``.

Each of these asks the device for a value that the host needs before it can go on. The queue of kernels runs empty in
every layer; a training step of a model that gathers with boolean masks reaches 0.31 to 0.38 of the matrix rate, where
slices reach 0.49 to 0.52.

    text = hidden_states[text_mask]
    length = int(mask.sum().item())

Instead: slices, ``torch.where``, and lengths that the adapter knows on the host.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.ported_code import written_files
from scaffold.check.model.tensors import is_tensor
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
_BUILTINS = {"bool", "int", "float"}


def check(package: Package) -> Hits:
    """Look at all code that ``forward`` gets to, except what builds modules, and what is ported from upstream.

    What the ported denoiser reads back it reads back in the rollout, too; `verify` counts the places.
    """
    written = written_files(package)
    for function in package.forward_functions:
        if function.file not in written:
            continue
        for call in function.calls:
            what = _synchronises(function, call)
            if what is not None:
                yield Hit(function.file, call, f"{what} waits for the device")
        for node in function.nodes(ast.Subscript):
            if isinstance(node, ast.Subscript) and _is_mask(function, node.slice):
                yield Hit(function.file, node, f"indexing with the mask {ast.unparse(node.slice)} waits for the device")
        for kind in (ast.If, ast.IfExp, ast.While, ast.Assert):
            for statement in function.nodes(kind):
                for call in _tested(getattr(statement, "test")):  # noqa: B009
                    if _reduces(call):
                        yield Hit(function.file, call, f"a test of {ast.unparse(call)} waits for the device")
                for compared in _compared(getattr(statement, "test")):  # noqa: B009
                    if is_tensor(function, compared):
                        text = f"a test of {ast.unparse(compared)}, which is a tensor, waits for the device"
                        yield Hit(function.file, compared, text)


def _synchronises(function: FunctionModel, call: ast.Call) -> str | None:
    qualified = function.file.qualified(call.func)
    if qualified is not None and qualified.startswith("torch.") and qualified.endswith(".synchronize"):
        return f"{qualified}()"
    if qualified in _FUNCTIONS:
        return f"{qualified}()"
    if qualified == "torch.where" and len(call.args) == 1 and not call.keywords:
        return "torch.where() with one argument"
    if qualified in _BUILTINS and len(call.args) == 1:
        inner = call.args[0]
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant) and _of_mask(inner.value):
            return f"{qualified}({ast.unparse(inner)})"
        reduced = isinstance(inner, ast.Call) and _reduces(inner)
        return f"{qualified}({ast.unparse(inner)})" if reduced or is_tensor(function, inner) else None
    if qualified is None and isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
        return f".{call.func.attr}()"
    return None


def _reduces(call: ast.Call) -> bool:
    """Whether a call gives one number or truth value of a tensor."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _REDUCTIONS:
        return False
    if isinstance(function.value, ast.Name) and function.value.id in ("torch", "np", "math", "F"):
        return function.value.id == "torch" and function.attr in ("equal", "allclose", "any", "all")
    # With a dimension the result is a tensor, not one number.
    return not call.args and not any(item.arg in ("dim", "axis") for item in call.keywords)


def _of_mask(value: ast.expr) -> bool:
    """Whether a value is ``mask.sum(…)``, one number a sample."""
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("sum", "cumsum", "amax", "argmax")
        and "mask" in ast.unparse(value.func.value).lower()
    )


def _tested(test: ast.expr) -> list[ast.Call]:
    """Return the calls whose result a test asks for as it is."""
    if isinstance(test, ast.BoolOp):
        return [call for value in test.values for call in _tested(value)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _tested(test.operand)
    if isinstance(test, ast.Compare):
        return [call for value in (test.left, *test.comparators) for call in _tested(value)]
    return [test] if isinstance(test, ast.Call) else []


def _compared(test: ast.expr) -> list[ast.Compare]:
    """Return the comparisons, other than of calls, whose result a test asks for as it is."""
    if isinstance(test, ast.BoolOp):
        return [compared for value in test.values for compared in _compared(value)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _compared(test.operand)
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
    return [test] if isinstance(test, ast.Compare) and not any(isinstance(side, ast.Call) for side in sides) else []


def _is_mask(function: FunctionModel, index: ast.expr, hops: int = 3) -> bool:
    """Whether an index is a boolean tensor."""
    if isinstance(index, (ast.Compare, ast.UnaryOp)):
        inner = index.left if isinstance(index, ast.Compare) else index.operand
        invert = isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert)
        return invert or (isinstance(index, ast.Compare) and not isinstance(inner, ast.Constant))
    if isinstance(index, ast.Call):
        attribute = index.func.attr if isinstance(index.func, ast.Attribute) else ""
        kinds = [ast.unparse(value) for value in (*index.args, *(item.value for item in index.keywords))]
        return attribute == "bool" or (attribute in ("to", "zeros", "ones", "full", "type") and "torch.bool" in kinds)
    if isinstance(index, ast.Name) and hops:
        bindings = function.file.scopes.lookup(index.id, index)
        values = [binding.value for binding in bindings if binding.value is not None]
        if any(_is_mask(function, value, hops - 1) for value in values):
            return True
        return bool(bindings) and not values and index.id.lower().endswith("mask")
    return isinstance(index, ast.Attribute) and index.attr.lower().endswith("mask")


FAILING = (
    Example("synchronize", model=("latent_pos_ids)\n", "latent_pos_ids)\n        «torch.accelerator.synchronize()»\n")),
    Example("in a layer", model=("context.shape[1]", "«int(key_mask.sum())»")),
    Example("one entry of the lengths", model=("context.shape[1]", "«int(key_mask.sum(dim=1)[0])»")),
)
PASSING = (
    Example(
        "a tensor is there or not",
        model=(
            "latent_pos_ids)\n",
            (
                "latent_pos_ids)\n        if text_attention_mask is None and latents.ndim == 2:\n            latents = latents[None]\n"
            ),
        ),
    ),
    Example("sizes are known on the host", model=("context.shape[1]", "int(context.size(1))")),
    Example(
        "outside of forward",
        model=("assign=True)\n", "assign=True)\n        model.count = next(model.parameters()).sum().item()\n"),
    ),
)
