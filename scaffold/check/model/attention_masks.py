"""What the mask that attention gets went through on its way: conversions, inversions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.model.calls import argument, attribute_name, bind, keyword, resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel

_FLOATING = {"float", "half", "bfloat16", "double"}
_TYPES = {f"torch.{name}" for name in ("float32", "float16", "bfloat16", "float64", "float", "half", "double")}
_BOOLEAN = {"torch.bool"}
_RESHAPING = {
    *("view", "reshape", "expand", "unsqueeze", "squeeze", "contiguous", "clone", "repeat", "flatten", "expand_as"),
    *("transpose", "permute", "unflatten", "detach"),
}
_DEEPEST = 10


class Step(NamedTuple):
    """Something that is done to the mask's values.

    Attributes:
        kind: ``float``: its true and false become 1 and 0; ``bool``; ``not``: it is turned round; ``seen``: it is
            extended by ones, for tokens that are to be seen.
        function, node: where.
    """

    kind: str
    function: FunctionModel
    node: ast.expr


class MaskPaths:
    """Ways of masks to attention, through the functions of the forward code.

    Args:
        functions: the forward code.
        masks: ``(function, parameter)`` where the padding mask comes in.
        layer: ``forward`` of the only kind of layer, which checkpointing functions call; None where there are more.
    """

    def __init__(
        self, functions: list[FunctionModel], masks: set[tuple[FunctionModel, str]], layer: FunctionModel | None
    ) -> None:
        self.functions, self.masks, self.layer = functions, masks, layer

    def steps(
        self, function: FunctionModel, value: ast.expr, query: set[str], depth: int = 0
    ) -> Iterator[tuple[Step, ...]]:
        """Yield, for each way that leads from a padding mask to an expression, what is done on it, last first.

        Args:
            function: where the expression stands.
            value: the expression.
            query: names of floating tensors beside it, of which the type may be asked for.
            depth: how many steps lie behind.
        """
        if depth > _DEEPEST:
            return
        if isinstance(value, ast.IfExp):
            for arm in (value.body, value.orelse):
                yield from self.steps(function, arm, query, depth + 1)
        elif isinstance(value, ast.Subscript):
            yield from self.steps(function, value.value, query, depth + 1)
        elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Invert):
            for way in self.steps(function, value.operand, query, depth + 1):
                yield (Step("not", function, value), *way)
        elif isinstance(value, ast.Call):
            yield from self._call(function, value, query, depth)
        elif isinstance(value, ast.Name):
            yield from self._name(function, value, query, depth)
        elif isinstance(value, ast.Attribute):
            for other in self.functions:
                for target, given in other.assignments:
                    if target == f".{value.attr}":
                        yield from self.steps(other, given, set(), depth + 1)

    def _call(self, function: FunctionModel, call: ast.Call, query: set[str], depth: int) -> Iterator[tuple[Step, ...]]:
        name = function.file.qualified(call.func)
        if name == "torch.nn.functional.pad" and call.args:
            filled = argument(call, "value", 3)
            seen = filled is not None and function.file.value(filled) in (True, 1, 1.0)
            for way in self.steps(function, call.args[0], query, depth + 1):
                yield (Step("seen", function, call), *way) if seen else way
            return
        if name == "torch.logical_not" and len(call.args) == 1:
            for way in self.steps(function, call.args[0], query, depth + 1):
                yield (Step("not", function, call), *way)
            return
        if not isinstance(call.func, ast.Attribute) or name is not None:
            return
        method, kind = call.func.attr, _converted(function, call, query)
        if method in _RESHAPING:
            yield from self.steps(function, call.func.value, query, depth + 1)
        elif method == "logical_not" or kind is not None:
            for way in self.steps(function, call.func.value, query, depth + 1):
                yield (Step(kind or "not", function, call), *way) if kind != "" else way

    def _name(self, function: FunctionModel, name: ast.Name, query: set[str], depth: int) -> Iterator[tuple[Step, ...]]:
        if _filled(function, name.id):
            return
        for binding in reaching(function, name):
            if binding.kind == "parameter":
                if (function, name.id) in self.masks:
                    yield ()
                for caller, given in self._given(function, name.id):
                    yield from self.steps(caller, given, set(), depth + 1)
            elif binding.value is not None:
                yield from self.steps(function, binding.value, query, depth + 1)

    def _given(self, function: FunctionModel, parameter: str) -> Iterator[tuple[FunctionModel, ast.expr]]:
        for caller in self.functions:
            for call in caller.calls:
                called = resolve(caller.file, call, caller.cls)
                if isinstance(called, ClassModel):
                    called = called.method("__init__" if function.name == "__init__" else "forward")
                given = None
                if called == function:
                    given = bind(call, function).get(parameter)
                elif function == self.layer and "checkpoint" in (attribute_name(call) or ""):
                    handed = dict(zip(function.positional, call.args[1:], strict=False))
                    given = handed.get(parameter, keyword(call, parameter))
                if given is not None and not isinstance(given, ast.Starred):
                    yield caller, given


def _filled(function: FunctionModel, name: str) -> bool:
    """Whether a function changes a tensor in place."""
    for call in function.calls:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id == name and (attribute_name(call) or "").endswith("_"):
            return True
    subscripts = function.file.index.nodes(ast.Subscript, function.node)
    stores = [node.value for node in subscripts if isinstance(node.ctx, ast.Store)]
    return any(isinstance(value, ast.Name) and value.id == name for value in stores)


def _converted(function: FunctionModel, call: ast.Call, query: set[str]) -> str | None:
    """Return what a method makes of a mask's type: ``float``, ``bool``, ``""`` for the same; None where unknown."""
    assert isinstance(call.func, ast.Attribute)
    method = call.func.attr
    if method in _FLOATING:
        return "float"
    if method == "bool":
        return "bool"
    if method == "type_as" and len(call.args) == 1:
        return "float" if ast.unparse(call.args[0]) in query else None
    if method not in ("to", "type"):
        return None
    given = [*call.args, *(item.value for item in call.keywords if item.arg == "dtype")]
    kinds = {_kind(function, value, query) for value in given}
    if kinds & {"float", "bool"}:
        return "float" if "float" in kinds else "bool"
    return "" if kinds == {""} or not given else None


def _kind(function: FunctionModel, value: ast.expr, query: set[str]) -> str | None:
    name = function.file.qualified(value)
    if name in _TYPES:
        return "float"
    if name in _BOOLEAN:
        return "bool"
    if isinstance(value, ast.Attribute) and value.attr == "device":
        return ""
    text = ast.unparse(value)
    if text in query or text.removesuffix(".dtype") in query:
        return "float"
    return "" if "device" in text else None
