"""Whether a tensor is certainly float32, or certainly in whatever precision the model or the engine works in."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from scaffold.check.model.calls import keyword
from scaffold.check.model.dataflow import arguments, bound_value, reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side

_FULL = {"torch.float32", "torch.float", "torch.float64", "torch.double"}
_LOW = {"torch.bfloat16", "torch.float16", "torch.half"}
_KEEPING = {
    "clone", "detach", "cpu", "contiguous", "view", "reshape", "squeeze", "unsqueeze", "flatten", "expand", "repeat",
    "transpose", "permute", "cuda", "requires_grad_", "unflatten", "chunk", "split", "expand_as", "clamp", "narrow",
}  # fmt: skip
_JOINING = {"torch.cat", "torch.stack", "torch.where", "torch.lerp", "torch.concat", "torch.add", "torch.sub"}
_DEEPEST = 14
# What a parameter that nothing calls with is: False where it is known to come in low precision.
Given = Callable[[FunctionModel, str], bool | None]


def is_float32(side: Side, function: FunctionModel, expr: ast.expr, given: Given, depth: int = 0) -> bool | None:
    """Whether a tensor is float32 (or wider): True, False where nothing made it so, None where that is not plain.

    Args:
        given: says what a parameter is whose arguments are not in the tree.
    """
    if depth > _DEEPEST:
        return None
    file = function.file

    def of(inner: ast.expr, around: FunctionModel = function) -> bool | None:
        return is_float32(side, around, inner, given, depth + 1)

    if isinstance(expr, ast.Call):
        return _of_call(side, function, expr, given, of)
    if isinstance(expr, (ast.Subscript, ast.Starred)):
        return of(expr.value)
    if isinstance(expr, ast.UnaryOp):
        return of(expr.operand)
    if isinstance(expr, ast.BinOp):
        # A float32 tensor widens what it is combined with; a number does not.
        sides = [of(part) for part in (expr.left, expr.right) if not isinstance(part, ast.Constant)]
        return _widest(sides)
    if isinstance(expr, ast.IfExp):
        return _narrowest([of(expr.body), of(expr.orelse)])
    if isinstance(expr, ast.Attribute) and expr.attr in ("weight", "bias"):
        # A parameter, whose dtype is asked for.
        return given(function, "module()")
    if isinstance(expr, ast.Name):
        found: list[bool | None] = []
        for binding in reaching(function, expr):
            if binding.kind == "parameter":
                calls = list(arguments(side, function, expr.id))
                found += [of(value, caller) for caller, value in calls] or [given(function, expr.id)]
            elif binding.kind == "variable":
                value = binding.value if binding.value is not None else bound_value(file, binding.node)
                found.append(of(value) if value is not None else None)
            else:
                found.append(None)
        return _narrowest(found)
    return None


def _of_call(
    side: Side, function: FunctionModel, call: ast.Call, given: Given, of: Callable[..., bool | None]
) -> bool | None:
    file, target = function.file, call.func
    name = file.qualified(target) or ""
    if isinstance(target, ast.Attribute) and not name.startswith("torch."):
        if target.attr in ("float", "double"):
            return True
        if target.attr in ("half", "bfloat16"):
            return False
        if (like := dtype_of(call)) is not None:
            return of(like)
        if target.attr in ("to", "type"):
            dtype = _dtype(function, call)
            return of(target.value) if dtype == "" else None if dtype is None else dtype in _FULL
        if target.attr in _KEEPING:
            return of(target.value)
    if isinstance(target, ast.Name) and not name:
        bindings = reaching(function, target)
        if bindings and all(binding.kind == "parameter" for binding in bindings):
            return given(function, f"{target.id}()")
    if name in _JOINING:
        given_dtype = keyword(call, "dtype")
        parts: list[ast.expr] = []
        for value in call.args:
            parts += value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
        mask = parts[:1] if name == "torch.where" else []
        return None if given_dtype is not None else _widest([of(part) for part in parts if part not in mask])
    called = side.called(function, call)
    if called is not None:
        return _narrowest([of(item.value, called) for item in called.returns if item.value is not None])
    if isinstance(target, ast.Attribute) and target.attr == "forward" and isinstance(target.value, ast.Name):
        if target.value.id == function.bound and call.args:
            # The base class's forward: one prediction of the module.
            return given(function, "module()")
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == function.bound:
        # What the upstream pipeline computes.
        return given(function, "upstream()")
    return None


def dtype_of(call: ast.Call) -> ast.expr | None:
    """Return the tensor whose dtype a tensor is given: ``x`` of ``.to(x.dtype)`` and ``.type_as(x)``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "type", "type_as"):
        return None
    values = [*call.args, *(item.value for item in call.keywords if item.arg in ("dtype", "other"))]
    if call.func.attr == "type_as":
        return values[0] if len(values) == 1 else None
    found = [value.value for value in values if isinstance(value, ast.Attribute) and value.attr == "dtype"]
    return found[0] if len(found) == 1 else None


def _dtype(function: FunctionModel, call: ast.Call) -> str | None:
    """Return the dotted dtype of ``.to(…)``: "" where none is given, None where it is not plain."""
    values: Iterable[ast.expr] = [*call.args, *(item.value for item in call.keywords if item.arg in ("dtype", "other"))]
    for value in values:
        name = function.file.qualified(value) or ""
        if name in _FULL or name in _LOW:
            return name
        if not isinstance(value, ast.Constant) and not name.startswith("torch.device") and not _is_device(value):
            return None
    return ""


def _is_device(value: ast.expr) -> bool:
    return ast.unparse(value).lower().endswith("device")


def _narrowest(found: list[bool | None]) -> bool | None:
    if False in found:
        return False
    return True if found and all(found) else None


def _widest(found: list[bool | None]) -> bool | None:
    if True in found:
        return True
    return False if found and all(item is False for item in found) else None
