"""Which expressions of the forward code certainly are tensors."""

from __future__ import annotations

import ast

from scaffold.check.model.calls import resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import reaching, unpacked_at
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.reach import name_called_on_self
from scaffold.check.model.scopes import Binding

TENSOR = "torch.Tensor"
# Methods that give a new tensor and leave their own as it is; nothing but tensors has most of them.
ARITHMETIC = {
    *("mul", "sub", "div", "neg", "matmul", "addmm", "baddbmm", "addcmul", "addcdiv", "lerp", "clamp", "clip"),
    *("masked_fill", "masked_scatter", "index_add", "index_fill", "index_copy", "scatter_add"),
    *("unsqueeze", "squeeze", "permute", "unflatten", "contiguous", "repeat_interleave", "cumsum", "softmax"),
    *("rsqrt", "sigmoid", "tanh", "movedim", "swapaxes", "tril", "triu", "view_as", "expand_as", "type_as"),
}
# Methods of which other objects have their own, with an effect.
SHARED = {
    *("add", "to", "float", "half", "double", "bfloat16", "long", "int", "bool", "type", "view", "reshape", "flatten"),
    *("expand", "repeat", "transpose", "clone", "detach", "pow", "exp", "log", "sqrt", "abs", "cos", "sin", "roll"),
    *("flip", "sum", "mean", "cpu", "cuda", "round", "square", "t", "scatter", "where"),
}
PURE = ARITHMETIC | SHARED
_PARTS = {"aminmax", "chunk", "split", "unbind", "tensor_split", "max", "min", "topk", "sort"}
_ONE = {*("amax", "amin", "std", "var", "norm", "prod", "max", "min", "argmax", "argmin", "median", "gather")}
_ONE |= {*("any", "all", "index_select", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "diff")}
_MADE = {
    *("cat", "stack", "where", "concat", "arange", "linspace", "zeros", "ones", "full", "empty", "eye", "tensor"),
    *("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "randn", "rand", "as_tensor"),
    *("einsum", "outer", "bmm", "maximum", "minimum"),
}
_LAYERS = {
    *("Linear", "Embedding", "Conv1d", "Conv2d", "Conv3d", "LayerNorm", "RMSNorm", "GroupNorm", "SiLU", "GELU"),
    *("Sequential", "Identity", "Dropout", "ReLU", "Sigmoid", "Tanh", "Softmax"),
}
_DEEPEST = 8


def is_tensor(function: FunctionModel, expr: ast.expr, depth: int = 0) -> bool:
    """Whether an expression of a function certainly is a tensor, or None in its place."""
    if depth > _DEEPEST:
        return False
    if isinstance(expr, ast.Name):
        bindings = reaching(function, expr)
        return bool(bindings) and all(_bound(function, binding, depth + 1) for binding in bindings)
    if isinstance(expr, ast.BinOp):
        return any(is_tensor(function, side, depth + 1) for side in (expr.left, expr.right))
    if isinstance(expr, ast.UnaryOp):
        return not isinstance(expr.op, ast.Not) and is_tensor(function, expr.operand, depth + 1)
    if isinstance(expr, ast.Compare):
        compares = all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)) for op in expr.ops)
        return compares and any(is_tensor(function, side, depth + 1) for side in (expr.left, *expr.comparators))
    if isinstance(expr, ast.IfExp):
        return all(is_tensor(function, side, depth + 1) for side in (expr.body, expr.orelse))
    if isinstance(expr, ast.Subscript):
        return is_tensor(function, expr.value, depth + 1) or _is_parts(function, expr.value, depth + 1)
    if isinstance(expr, ast.Attribute):
        return expr.attr in ("T", "mT", "data", "values", "indices") and is_tensor(function, expr.value, depth + 1)
    return isinstance(expr, ast.Call) and _called(function, expr, depth + 1)


def is_function_of_torch(function: FunctionModel, call: ast.Call) -> str | None:
    """Return the name of a function of torch that gives a new tensor and changes none of those that it is given."""
    name = function.file.qualified(call.func)
    if name is None or any(item.arg in ("out", "inplace", None) for item in call.keywords):
        return None
    last = name.rpartition(".")[2]
    if name.startswith("torch.nn.functional."):
        return None if last.endswith("_") else name
    return name if name == f"torch.{last}" and last in (PURE | _MADE | _ONE) else None


def _called(function: FunctionModel, call: ast.Call, depth: int) -> bool:
    name = function.file.qualified(call.func)
    if name is not None and (name.startswith("torch.nn.functional.") or is_function_of_torch(function, call)):
        # Along a dimension max() gives a pair.
        return name not in ("torch.max", "torch.min", "torch.median") or len(call.args) + len(call.keywords) == 1
    found = resolve(function.file, call, function.cls)
    if isinstance(found, ClassModel):
        forward = found.method("forward") if name_called_on_self(function, call) else None
        return forward is not None and says_tensor(forward)
    if isinstance(found, FunctionModel):
        return says_tensor(found)
    if name_called_on_self(function, call):
        return _is_layer(function, call)
    if not isinstance(call.func, ast.Attribute) or not is_tensor(function, call.func.value, depth):
        return False
    method = call.func.attr.rstrip("_")
    if method in ("max", "min", "median"):
        return not call.args and not call.keywords
    return method in PURE | _ONE


def _is_layer(function: FunctionModel, call: ast.Call) -> bool:
    """Whether ``self.x`` is a layer of torch that gives one tensor."""
    assert isinstance(call.func, ast.Attribute)
    assigned = function.cls.instance_attributes(call.func.attr) if function.cls is not None else []
    kinds = [a.file.qualified(a.value.func) if isinstance(a.value, ast.Call) else None for a in assigned]
    return bool(kinds) and all(kind is not None and kind.removeprefix("torch.nn.") in _LAYERS for kind in kinds)


def _is_parts(function: FunctionModel, value: ast.expr, depth: int) -> bool:
    """Whether a value is several tensors, out of one."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr not in _PARTS:
        return False
    first = value.args[0] if value.args else None
    of_torch = function.file.qualified(value.func) == f"torch.{value.func.attr}" and first is not None
    return is_tensor(function, first if of_torch and first is not None else value.func.value, depth)


def _bound(function: FunctionModel, binding: Binding, depth: int) -> bool:
    if isinstance(binding.node, ast.arg):
        return annotated_tensor(function, binding.node.annotation)
    if binding.kind != "variable":
        return False
    if binding.value is not None:
        none = isinstance(binding.value, ast.Constant) and binding.value.value is None
        return none or is_tensor(function, binding.value, depth)
    place = unpacked_at(function.file, binding.node)
    if place is None:
        return False
    if isinstance(place[0], ast.Tuple) and place[1] < len(place[0].elts):
        return is_tensor(function, place[0].elts[place[1]], depth)
    return _is_parts(function, place[0], depth)


def says_tensor(function: FunctionModel) -> bool:
    """Whether a function says that it returns one tensor."""
    return annotated_tensor(function, function.node.returns)


def annotated_tensor(function: FunctionModel, annotation: ast.expr | None) -> bool:
    """Whether an annotation is a tensor's, ``Tensor | None`` included."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = [annotation.left, annotation.right]
        some = [side for side in sides if not (isinstance(side, ast.Constant) and side.value is None)]
        return len(some) == 1 and annotated_tensor(function, some[0])
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value in ("Tensor", TENSOR)
    return annotation is not None and function.file.qualified(annotation) == TENSOR
