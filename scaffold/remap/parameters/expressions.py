"""Evaluates the expressions of constructors: numbers, configuration, calls."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from scaffold.bounded import Budget, TooLargeError, compare, joined, method, operate
from scaffold.remap.parameters.layers import UnreadableError, shown, tensor_method
from scaffold.remap.parameters.values import UNKNOWN, Callee, ModuleValue, Opaque, Record, TensorValue

Environment = dict[str, Any]
MAX_ITEMS = 100_000
_READS = (ast.Name, ast.Attribute)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "len": len,
    "min": min,
    "max": max,
    "abs": abs,
    "sum": sum,
    "round": round,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "sorted": sorted,
    "enumerate": lambda items, start=0: list(enumerate(items, start)),
    "zip": lambda *items, **_: list(zip(*items, strict=False)),
    "math.sqrt": math.sqrt,
    "math.isqrt": math.isqrt,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.prod": math.prod,
    "math.log2": math.log2,
    "collections.OrderedDict": dict,
}


class Expressions:
    """Evaluates expressions; what calls and attributes of instances give is the business of the subclass."""

    aliases: dict[str, str]
    budget: Budget

    def global_value(self, name: str) -> Any:
        """Return a name of the file."""
        raise NotImplementedError

    def call(self, callee: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call, env: Environment) -> Any:
        """Return what a call gives."""
        raise NotImplementedError

    def attribute_of(self, record: Record, name: str) -> Any:
        """Return a field or property of an instance."""
        raise NotImplementedError

    def evaluate(self, node: ast.expr, env: Environment) -> Any:
        """Return the value of an expression, ``UNKNOWN`` where the text does not tell it."""
        found = getattr(self, f"_{type(node).__name__}", None)
        if found is None:
            return UNKNOWN
        self.budget.spend()
        try:
            return found(node, env) if isinstance(node, _READS) else self.budget.hold(found(node, env))
        except UnreadableError:
            raise
        except TooLargeError as error:
            raise UnreadableError(str(error)) from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return UNKNOWN

    def _Constant(self, node: ast.Constant, env: Environment) -> Any:
        return node.value

    def _Name(self, node: ast.Name, env: Environment) -> Any:
        return env[node.id] if node.id in env else self.global_value(node.id)

    def _Attribute(self, node: ast.Attribute, env: Environment) -> Any:
        base = self.evaluate(node.value, env)
        if isinstance(base, Callee):
            return Callee(f"{base.name}.{node.attr}")
        if isinstance(base, ModuleValue):
            return base.get(node.attr)
        if isinstance(base, Record):
            return self.attribute_of(base, node.attr)
        if isinstance(base, TensorValue):
            # The module is read as if it were built on the meta device.
            return {"shape": base.shape, "ndim": len(base.shape), "is_meta": True}.get(node.attr, UNKNOWN)
        return UNKNOWN

    def _BinOp(self, node: ast.BinOp, env: Environment) -> Any:
        left, right = self.evaluate(node.left, env), self.evaluate(node.right, env)
        for value in (left, right):
            if isinstance(value, TensorValue):
                return TensorValue(value.shape) if not isinstance(left, type(right)) else UNKNOWN
        if isinstance(left, Opaque) or isinstance(right, Opaque):
            return UNKNOWN
        return operate(type(node.op), left, right)

    def _UnaryOp(self, node: ast.UnaryOp, env: Environment) -> Any:
        value = self.evaluate(node.operand, env)
        if isinstance(value, Opaque):
            return UNKNOWN
        return not value if isinstance(node.op, ast.Not) else -value if isinstance(node.op, ast.USub) else UNKNOWN

    def _BoolOp(self, node: ast.BoolOp, env: Environment) -> Any:
        value: Any = UNKNOWN
        for part in node.values:
            value = self.evaluate(part, env)
            if isinstance(value, Opaque) or bool(value) != isinstance(node.op, ast.And):
                return value
        return value

    def _Compare(self, node: ast.Compare, env: Environment) -> Any:
        left = self.evaluate(node.left, env)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(part, env)
            if isinstance(left, Opaque) or isinstance(right, Opaque):
                return UNKNOWN
            if not compare(type(op), left, right):
                return False
            left = right
        return True

    def _IfExp(self, node: ast.IfExp, env: Environment) -> Any:
        test = self.evaluate(node.test, env)
        if isinstance(test, Opaque):
            return UNKNOWN
        return self.evaluate(node.body if test else node.orelse, env)

    def _Tuple(self, node: ast.Tuple | ast.List, env: Environment) -> Any:
        items: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                items += self.items(self.evaluate(item.value, env))
            else:
                items.append(self.evaluate(item, env))
        return tuple(items) if isinstance(node, ast.Tuple) else items

    _List = _Tuple

    def _Dict(self, node: ast.Dict, env: Environment) -> Any:
        if any(key is None for key in node.keys):
            return UNKNOWN
        return {
            self.evaluate(key, env): self.evaluate(value, env)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }

    def _Subscript(self, node: ast.Subscript, env: Environment) -> Any:
        base = self.evaluate(node.value, env)
        if isinstance(node.slice, ast.Slice):
            ends = [None if end is None else self.evaluate(end, env) for end in (node.slice.lower, node.slice.upper)]
            return base[slice(*ends)]
        key = self.evaluate(node.slice, env)
        return base.children[str(key)] if isinstance(base, ModuleValue) else base[key]

    def _JoinedStr(self, node: ast.JoinedStr, env: Environment) -> Any:
        parts = []
        for part in node.values:
            value = self.evaluate(part.value if isinstance(part, ast.FormattedValue) else part, env)
            if not isinstance(value, str | int):
                return UNKNOWN
            parts.append(value)
        return joined(parts)

    def _ListComp(self, node: ast.ListComp | ast.GeneratorExp, env: Environment) -> Any:
        return list(self._rows(node.generators, dict(env), lambda inner: self.evaluate(node.elt, inner)))

    _GeneratorExp = _ListComp

    def _DictComp(self, node: ast.DictComp, env: Environment) -> Any:
        pairs = self._rows(
            node.generators,
            dict(env),
            lambda inner: (self.evaluate(node.key, inner), self.evaluate(node.value, inner)),
        )
        return dict(pairs)

    def _rows(self, loops: list[ast.comprehension], env: Environment, make: Callable[[Environment], Any]) -> list[Any]:
        first, *rest = loops
        found: list[Any] = []
        for item in self.items(self.evaluate(first.iter, env)):
            self.bind(first.target, item, env)
            tests = [self.evaluate(test, env) for test in first.ifs]
            if any(isinstance(test, Opaque) for test in tests):
                raise UnreadableError("a condition is not known")
            if all(tests):
                found += self._rows(rest, env, make) if rest else [make(env)]
        return found

    def items(self, value: Any) -> list[Any]:
        """Return what a loop runs over.

        Raises:
            UnreadableError: it is not known, or has no end to speak of.
        """
        if isinstance(value, ModuleValue):
            return list(value.children.values())
        if isinstance(value, range | list | tuple | dict) and len(value) <= MAX_ITEMS:
            return list(value)
        raise UnreadableError(f"a loop runs over {shown(value)}")

    def bind(self, target: ast.expr, value: Any, env: Environment) -> None:
        """Assign a value to a name, several names or an attribute."""
        if isinstance(target, ast.Name):
            env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            values = list(value) if isinstance(value, list | tuple) else [UNKNOWN] * len(target.elts)
            if len(values) != len(target.elts):
                raise UnreadableError("an assignment does not come out even")
            for part, item in zip(target.elts, values, strict=True):
                self.bind(part, item, env)
        elif isinstance(target, ast.Attribute):
            base = self.evaluate(target.value, env)
            if isinstance(base, ModuleValue):
                base.put(target.attr, value)
        elif isinstance(target, ast.Subscript):
            base, key = self.evaluate(target.value, env), self.evaluate(target.slice, env)
            if isinstance(base, ModuleValue):
                base.put(str(key), value)
            elif isinstance(base, dict | list):
                base[key] = value

    def _Call(self, node: ast.Call, env: Environment) -> Any:
        args: list[Any] = []
        for item in node.args:
            if isinstance(item, ast.Starred):
                args += self.items(self.evaluate(item.value, env))
            else:
                args.append(self.evaluate(item, env))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, env)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                kwargs |= value
            else:
                raise UnreadableError("the keywords of a call are not known")
        if isinstance(node.func, ast.Attribute):
            base = self.evaluate(node.func.value, env)
            if isinstance(base, TensorValue):
                return tensor_method(base, node.func.attr)
            if isinstance(base, list) and node.func.attr in ("append", "extend"):
                return method(base, node.func.attr, *args)
            if isinstance(base, dict) and node.func.attr in ("items", "keys", "values", "get"):
                found = getattr(base, node.func.attr)(*args)
                return found if node.func.attr == "get" else list(found)
        return self.call(self.evaluate(node.func, env), args, kwargs, node, env)
