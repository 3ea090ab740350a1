"""On which device the tensors of a function are: those that came with the batch, and those made on the host."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.calls import attribute_name, bind, dotted, keyword, resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.tensors import annotated_tensor, is_function_of_torch

_SHAPED = {"zeros", "ones", "full", "empty", "rand", "randn"}
_ROWS = {"arange", "linspace", "eye", "logspace"}
# Methods that leave a tensor where it is.
_STAYING = {
    *("float", "double", "half", "bfloat16", "long", "int", "bool", "view", "reshape", "flatten", "unflatten"),
    *("expand", "unsqueeze", "squeeze", "transpose", "permute", "repeat", "clone", "contiguous", "sum", "cos", "sin"),
    *("repeat_interleave", "exp", "mean", "chunk", "masked_fill", "clamp", "neg", "abs"),
}
# Methods of the training adapter that the engine calls, with the tensors that it gives them.
_ENTRIES = {"prepare_model_inputs": {"latents", "timesteps"}, "forward_and_sample_previous_step": set[str]()}
_DEEPEST = 8


class Placed:
    """Devices of what stands in a function.

    Args:
        function: the function.
        functions: the code that it belongs to, in which it is called.

    Attributes:
        made: calls that make a tensor of one dimension or more without saying where.
    """

    def __init__(self, function: FunctionModel, functions: list[FunctionModel]) -> None:
        self.function, self.functions = function, functions
        self.made = {call for call in function.calls if self._is_made(call)}

    def _is_made(self, call: ast.Call) -> bool:
        if any(item.arg in ("device", "out", None) for item in call.keywords) or not call.args:
            return False
        name = (attribute_name(call) or "") if isinstance(call.func, ast.Attribute) else ""
        if name not in _SHAPED | _ROWS or dotted(call.func) != f"torch.{name}":
            return False
        if self.function.file.qualified(call.func) != f"torch.{name}":
            return False
        if name in _SHAPED:
            shape = call.args[0]
            if isinstance(shape, (ast.Tuple, ast.List)):
                if not shape.elts:
                    return False
            elif name == "full" or (len(call.args) == 1 and not isinstance(shape, (ast.Constant, ast.BinOp))):
                return False
        # Inside of `with device:` a tensor is made there.
        return not any(
            isinstance(outer, (ast.With, ast.AsyncWith)) for outer in self.function.file.index.ancestors(call)
        )

    def members(self, part: ast.expr) -> Iterator[ast.expr]:
        """Yield what a part stands for: the elements of a list that is built up by name, else itself."""
        if not isinstance(part, ast.Name):
            yield part
            return
        bindings = reaching(self.function, part)
        values = [binding.value for binding in bindings]
        arms = [arm for value in values if value is not None for arm in _arms(value)]
        if None in values or not arms or not all(isinstance(arm, (ast.List, ast.Tuple)) for arm in arms):
            yield part
            return
        for arm in arms:
            yield from arm.elts  # type: ignore[attr-defined]
        for call in self.function.calls:
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Name) and owner.id == part.id and attribute_name(call) == "append":
                yield from call.args

    def on_host(self, expr: ast.expr, depth: int = 0) -> ast.Call | None:
        """Return the call that certainly makes an expression's tensor on the host."""
        if expr in self.made:
            return expr if isinstance(expr, ast.Call) else None
        if depth > _DEEPEST:
            return None
        if isinstance(expr, ast.Subscript):
            return self.on_host(expr.value, depth + 1)
        if isinstance(expr, ast.UnaryOp):
            return self.on_host(expr.operand, depth + 1)
        if isinstance(expr, ast.BinOp):
            return self._alone([expr.left, expr.right], depth)
        if isinstance(expr, ast.Call) and (is_function_of_torch(self.function, expr) or "").startswith("torch."):
            return self._alone(expr.args, depth) if keyword(expr, "device") is None else None
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr in _STAYING:
            moves = any(item.arg == "device" for item in expr.keywords)
            return None if moves else self.on_host(expr.func.value, depth + 1)
        if isinstance(expr, ast.Name):
            bindings = reaching(self.function, expr)
            value = bindings[0].value if len(bindings) == 1 else None
            return self.on_host(value, depth + 1) if value is not None else None
        return None

    def _alone(self, parts: list[ast.expr], depth: int) -> ast.Call | None:
        """Return what makes one of the operands on the host, where none comes with the batch."""
        found = [made for part in parts if (made := self.on_host(part, depth + 1)) is not None]
        other = any(self.follows_input(part, depth + 1) for part in parts) if found else False
        return found[0] if found and not other else None

    def follows_input(self, expr: ast.expr, depth: int = 0) -> bool:
        """Whether an expression certainly is where a tensor of the caller's is."""
        if depth > _DEEPEST:
            return False
        if isinstance(expr, ast.Subscript):
            return self.follows_input(expr.value, depth + 1)
        if isinstance(expr, ast.BinOp):
            return any(self.follows_input(side, depth + 1) for side in (expr.left, expr.right))
        if isinstance(expr, ast.Call):
            device = keyword(expr, "device")
            if device is not None:
                named = isinstance(device, ast.Constant)
                return not named and (self.function.file.qualified(expr.func) or "").startswith("torch.")
            stays = isinstance(expr.func, ast.Attribute) and expr.func.attr in _STAYING | {"to"}
            own = _of_self(self.function, expr) and bool(expr.args)
            if own:
                # A layer gives its result where its input is.
                return any(self.follows_input(value, depth + 1) for value in expr.args)
            return stays and isinstance(expr.func, ast.Attribute) and self._kept(expr, depth)
        if isinstance(expr, ast.Name):
            bindings = reaching(self.function, expr)
            return bool(bindings) and all(
                self._given(binding.node, depth + 1)
                if isinstance(binding.node, ast.arg)
                else binding.value is not None and self.follows_input(binding.value, depth + 1)
                for binding in bindings
            )
        return False

    def _given(self, parameter: ast.arg, depth: int) -> bool:
        """Whether a parameter is a tensor of the batch: of ``forward``, or given one by every call."""
        if self.function.parameter_node(parameter.arg) is not parameter:
            return False
        if not annotated_tensor(self.function, parameter.annotation) and self.function.name not in _ENTRIES:
            return False
        if self.function.name == "forward" or self.function.name in _ENTRIES:
            return self.function.name == "forward" or parameter.arg in _ENTRIES[self.function.name]
        given = [
            (caller, bind(call, self.function).get(parameter.arg))
            for caller in self.functions
            for call in caller.calls
            if _calls(caller, call, self.function)
        ]
        return bool(given) and all(
            value is not None and Placed(caller, self.functions).follows_input(value, depth + 1)
            for caller, value in given
        )

    def _kept(self, call: ast.Call, depth: int) -> bool:
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr == "to" and any("cpu" in ast.unparse(value) for value in call.args):
            return False
        return self.follows_input(call.func.value, depth + 1)


def _calls(caller: FunctionModel, call: ast.Call, function: FunctionModel) -> bool:
    name = attribute_name(call)
    if name != function.name and (function.cls is None or name != function.cls.name):
        return False
    found = resolve(caller.file, call, caller.cls)
    if isinstance(found, ClassModel):
        found = found.method("__init__")
    return found == function


def _arms(value: ast.expr) -> list[ast.expr]:
    return [*_arms(value.body), *_arms(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _of_self(function: FunctionModel, call: ast.Call) -> bool:
    target = call.func
    return (
        isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == function.bound
    )
