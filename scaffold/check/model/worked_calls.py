"""Calls in a text that is worked out."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from scaffold.bounded import call, method
from scaffold.check.model.array_methods import FUNCTIONS, METHODS
from scaffold.check.model.arrays import Array
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.name_functions import NotPlainError
from scaffold.check.model.plain_operations import BUILT_IN, TABLE, TEXT
from scaffold.check.model.values import UNKNOWN
from scaffold.check.model.worked_expressions import Expressions
from scaffold.check.model.worked_values import (
    OPAQUE,
    Bound,
    External,
    Inner,
    RefusedError,
    Stub,
    holds_opaque,
    number,
)

_READS = (ast.Name, ast.Attribute)
# Which attributes are of a name from outside of the function: the same whatever it is given.
_OUTSIDE: WeakKeyDictionary[Any, dict[ast.AST, bool]] = WeakKeyDictionary()
_PLAIN: dict[str, Callable[..., Any]] = {
    **BUILT_IN,
    "float": lambda value=0.0: number(value, float),
    "int": lambda value=0: number(value, int),
    "bool": lambda value=False: bool(number(value, bool)),
    "abs": lambda value: value.map(abs) if isinstance(value, Array) else abs(value),
    "len": lambda value: value.shape[0] if isinstance(value, Array) else len(value),
    "range": lambda *ends: call(list, range(*ends)),
    "round": round,
    "sum": sum,
    "list": lambda value=(): list(value.rows()) if isinstance(value, Array) else list(value),
}
_QUIET = {"debug", "info", "warning", "warning_once", "error", "print", "warn"}


class Frame(Expressions):
    """A function on its way, calls included."""

    def value(self, node: ast.expr) -> Any:
        """Return what an expression is worth.

        Raises:
            NotPlainError: it cannot be worked out.
        """
        self.work.budget.spend()
        found = _EXPRESSIONS.get(type(node))
        if found is None:
            raise NotPlainError
        return found(self, node) if isinstance(node, _READS) else self.work.budget.hold(found(self, node))

    def called(self, node: ast.Call) -> Any:
        target = node.func
        values, options = self.items(node.args), {}
        for item in node.keywords:
            value = self.value(item.value)
            if item.arg is not None:
                options[item.arg] = value
            elif isinstance(value, dict):
                options.update(value)
            else:
                raise NotPlainError
        if isinstance(target, ast.Attribute) and not self.is_outside(target):
            if isinstance(target.value, ast.Call) and getattr(target.value.func, "id", "") == "super":
                return self.of_super(target.attr, values, options)
            return self.method(node, self.value(target.value), target.attr, values, options)
        return self.apply(node, self.value(target), values, options)

    def is_outside(self, target: ast.Attribute) -> bool:
        root: ast.expr = target
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or root.id in self.names:
            return False
        outside = _OUTSIDE.setdefault(self.file.project, {})
        if target not in outside:
            plain = self.file.value(target.value) is not UNKNOWN
            outside[target] = not plain and self.file.qualified(target) is not None
        return outside[target]

    def of_super(self, name: str, values: list[Any], options: dict[str, Any]) -> Any:
        owner = self.function.cls
        found = self.cls.super_method(name, owner) if self.cls is not None and owner is not None else None
        if found is None:
            return self.answered(name, values, options)
        receiver = self.names.get(self.function.bound or "")
        return self.work.follow(Bound(found, receiver, self.cls), values, options, self.depth)

    def answered(self, name: str, values: list[Any], options: dict[str, Any]) -> Any:
        """Answer for what is not in the tree: as told, else nothing known."""
        if name in self.work.answers:
            return self.work.answers[name](*values, **options)
        for value in (*values, *options.values()):
            if hasattr(value, "lost"):
                value.lost()
        if name not in _QUIET and any(isinstance(v, (Stub, list, dict)) for v in (*values, *options.values())):
            if any(isinstance(v, Stub) and v.methods for v in (*values, *options.values())):
                raise NotPlainError  # what is known of it may not hold behind this
        return OPAQUE

    def apply(self, node: ast.Call, target: Any, values: list[Any], options: dict[str, Any]) -> Any:
        if isinstance(target, Bound):
            if target.function.name in self.work.answers:
                return self.work.answers[target.function.name](*values, **options)
            try:
                return self.work.follow(target, values, options, self.depth)
            except (NotPlainError, RefusedError, KeyError, IndexError):
                if self.work.lenient:
                    return OPAQUE
                raise
        if isinstance(target, Inner):
            return self.inner(target, values, options)
        if isinstance(target, Stub):
            if "__call__" in target.methods:
                return target.methods["__call__"](*values, **options)
            return OPAQUE
        if isinstance(target, ClassModel):
            return self.answered(target.name, values, options)
        if not isinstance(target, External):
            return OPAQUE
        if target.name in ("getattr", "hasattr"):
            return self.reflected(target.name, values)
        if target.name == "isinstance" and len(values) == 2:
            return self.is_instance(node, values[0], values[1])
        unsure = any(v is OPAQUE for v in values)
        if target.name in _PLAIN:
            if unsure or any(v is OPAQUE for v in options.values()):
                return OPAQUE
            if holds_opaque(values):
                return OPAQUE
            return call(_PLAIN[target.name], *values, **{key: self.plain(value) for key, value in options.items()})
        function = FUNCTIONS.get(target.name)
        held = [v for v in values if hasattr(v, "given_to")]
        if held:
            return held[0].given_to(node, target.name.rpartition(".")[2], values, options)
        if function is not None:
            kind = options.pop("dtype", None)
            options.pop("device", None)
            if unsure or any(v is OPAQUE for v in options.values()) or holds_opaque(values):
                return OPAQUE
            found = call(function, *values, **options)
            return METHODS["to"](found, kind) if isinstance(found, Array) and kind is not None else found
        return self.answered(target.name.rpartition(".")[2], values, options)

    def plain(self, value: Any) -> Any:
        """Return a value as Python's own functions take it: functions of the text as callables."""
        return (lambda *given: self.inner(value, list(given), {})) if isinstance(value, Inner) else value

    def reflected(self, name: str, values: list[Any]) -> Any:
        owner, attribute = values[0], values[1]
        if not isinstance(attribute, str):
            return OPAQUE
        if name == "hasattr" and isinstance(owner, (Array, list, tuple, dict, str, int, float)):
            return attribute in METHODS if isinstance(owner, Array) else hasattr(owner, attribute)
        if not isinstance(owner, Stub):
            return OPAQUE
        there = attribute in owner.attributes or (owner.cls is not None and owner.cls.method(attribute) is not None)
        if not there and owner.open_ended:
            return OPAQUE
        if name == "hasattr":
            return there
        if there:
            return self.stub_attribute(owner, attribute)
        if len(values) < 3:
            raise RefusedError
        return values[2]

    def is_instance(self, node: ast.Call, value: Any, kind: Any) -> Any:
        names = {getattr(k, "name", "") for k in (kind if isinstance(kind, tuple) else (kind,))}
        plain: dict[str, Any] = {"str": str, "int": int, "float": float, "list": list, "tuple": tuple, "dict": dict}
        plain |= {"bool": bool, "torch.Tensor": Array, "collections.abc.Sequence": (list, tuple, str)}
        plain |= {"collections.abc.Mapping": dict, "numpy.ndarray": ()}
        if value is OPAQUE or isinstance(value, (Stub, External)):
            return OPAQUE
        return any(name in plain and isinstance(value, plain[name]) for name in names)

    def inner(self, target: Inner, values: list[Any], options: dict[str, Any]) -> Any:
        arguments = target.node.args
        named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        if arguments.vararg or arguments.kwarg or len(values) > len(named):
            raise NotPlainError
        names = {**target.names, **dict(zip(named, values, strict=False)), **options}
        given = {*named[: len(values)], *options}
        defaults = [*zip(reversed(named), reversed(arguments.defaults), strict=False)]
        for name, default in defaults:
            if name not in given:
                names[name] = self.value(default)
                given.add(name)
        if not set(named) <= given or arguments.kwonlyargs:
            raise NotPlainError
        return Frame(self.work, self.function, self.cls, names, self.depth + 1).run(target.node)

    def method(self, node: ast.Call, owner: Any, name: str, values: list[Any], options: dict[str, Any]) -> Any:
        if hasattr(owner, "called"):
            return owner.called(node, name, values, options)
        if owner is OPAQUE:
            held = [v for v in (*values, *options.values()) if hasattr(v, "given_to")]
            return held[0].given_to(node, name, values, options) if held else self.answered(name, values, options)
        if isinstance(owner, Stub):
            if name in owner.methods:
                return owner.methods[name](*values, **options)
            found = self.stub_attribute(owner, name) if owner.open_ended or owner.cls else OPAQUE
            return (
                self.apply(node, found, values, options)
                if found is not OPAQUE
                else self.answered(name, values, options)
            )
        if isinstance(owner, Array):
            if name not in METHODS or (any(v is OPAQUE for v in values) and name != "to"):
                return OPAQUE
            if name != "to":
                options = {key: value for key, value in options.items() if key not in ("dtype", "device")}
            return call(METHODS[name], owner, *values, **options)
        if isinstance(owner, (External, ClassModel)):
            return self.apply(node, self.attribute_of(owner, name), values, options)
        if (isinstance(owner, str) and name in TEXT) or (
            isinstance(owner, dict) and name in (*TABLE, "update", "setdefault")
        ):
            return method(owner, name, *values, **options)
        if isinstance(owner, dict) and name in ("copy", "pop"):
            return method(owner, name, *values, **options)
        if isinstance(owner, list) and name in ("append", "extend", "insert", "index", "copy", "reverse"):
            return method(owner, name, *values, **options)
        if isinstance(owner, set) and name in ("add", "update", "union"):
            return method(owner, name, *values, **options)
        raise NotPlainError


_EXPRESSIONS: dict[type[ast.expr], Callable[[Frame, Any], Any]] = {
    ast.Constant: Frame.constant,
    ast.Name: Frame.name,
    ast.Tuple: Frame.sequence,
    ast.List: Frame.sequence,
    ast.Set: Frame.sequence,
    ast.Dict: Frame.dictionary,
    ast.IfExp: Frame.choice,
    ast.BoolOp: Frame.joined,
    ast.UnaryOp: Frame.unary,
    ast.BinOp: Frame.operation,
    ast.Compare: Frame.compared,
    ast.Subscript: Frame.subscript,
    ast.JoinedStr: Frame.text,
    ast.Lambda: Frame.function_of,
    ast.ListComp: Frame.comprehension,
    ast.GeneratorExp: Frame.comprehension,
    ast.SetComp: Frame.comprehension,
    ast.DictComp: Frame.comprehension,
    ast.Attribute: Frame.attribute,
    ast.Call: Frame.called,
}
