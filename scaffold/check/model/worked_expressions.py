"""Expressions of a text that is worked out, but for calls."""

from __future__ import annotations

import ast
from typing import Any
from weakref import WeakKeyDictionary

from scaffold.bounded import joined
from scaffold.check.model.array_methods import METHODS, NUMBERS
from scaffold.check.model.arrays import Array
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.name_functions import NotPlainError
from scaffold.check.model.values import UNKNOWN, known
from scaffold.check.model.worked_operators import Operators
from scaffold.check.model.worked_values import OPAQUE, Bound, External, Inner, RefusedError, Stub

# What names from outside of a function mean, and which attributes are of such a name: the same whatever it is given.
_MEANINGS: WeakKeyDictionary[Any, dict[ast.AST, Any]] = WeakKeyDictionary()


class Expressions(Operators):
    """What names, containers, comprehensions, subscripts and attributes are worth."""

    def constant(self, node: ast.Constant) -> Any:
        return node.value

    def name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            return self.names[node.id]
        return self.outside(node)

    def outside(self, node: ast.expr) -> Any:
        meanings = _MEANINGS.setdefault(self.file.project, {})
        if node not in meanings:
            meanings[node] = self.meaning(node)
        value = meanings[node]
        return list(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value

    def meaning(self, node: ast.expr) -> Any:
        value = self.file.value(node)
        if value is not UNKNOWN and known(value):
            return value
        name = self.file.qualified(node)
        if name is None:
            return OPAQUE
        if name in NUMBERS:
            return NUMBERS[name]
        project = self.file.project
        return project.class_named(name) or self.function_named(name) or External(name)

    def function_named(self, name: str) -> Bound | None:
        function = self.file.project.function_named(name)
        return Bound(function) if function is not None and function.cls is None else None

    def sequence(self, node: ast.Tuple | ast.List | ast.Set) -> Any:
        kind = {ast.Tuple: tuple, ast.List: list, ast.Set: set}[type(node)]
        return kind(self.items(node.elts))

    def items(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            found += self.items_of(self.value(node.value)) if isinstance(node, ast.Starred) else [self.value(node)]
        return found

    def dictionary(self, node: ast.Dict) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.value(value)
                if not isinstance(inner, dict):
                    raise NotPlainError
                found |= inner
            else:
                found[self.value(key)] = self.value(value)
        return found

    def choice(self, node: ast.IfExp) -> Any:
        test = self.value(node.test)
        if test is OPAQUE and self.work.lenient:
            return OPAQUE
        return self.value(node.body if self.truth(test) else node.orelse)

    def joined(self, node: ast.BoolOp) -> Any:
        value: Any = None
        unsure = False
        for part in node.values:
            value = self.value(part)
            if value is OPAQUE:
                unsure = True
            elif self.truth(value) == isinstance(node.op, ast.Or):
                return OPAQUE if unsure and not isinstance(value, bool) else value
        return OPAQUE if unsure else value

    def subscript(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        if owner is OPAQUE:
            return OPAQUE
        key = self.key(node.slice)
        if isinstance(owner, Array):
            if key is OPAQUE or (isinstance(key, tuple) and OPAQUE in [k for k in key if k is OPAQUE]):
                return OPAQUE
            return owner.at(key)
        if isinstance(owner, Stub):
            return owner.methods["__getitem__"](key) if "__getitem__" in owner.methods else OPAQUE
        if self.work.lenient and not (isinstance(owner, dict) and not isinstance(key, dict) and key in owner):
            return OPAQUE if isinstance(owner, dict) or key is OPAQUE else owner[key]
        if key is OPAQUE or not isinstance(owner, (list, tuple, dict, str)):
            raise NotPlainError
        return owner[key]

    def key(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self.key(part) for part in node.elts)
        if isinstance(node, ast.Slice):
            ends = [self.value(part) if part is not None else None for part in (node.lower, node.upper, node.step)]
            if any(not (end is None or isinstance(end, int)) for end in ends):
                raise NotPlainError
            return slice(*ends)
        return self.value(node)

    def text(self, node: ast.JoinedStr) -> Any:
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.value(part.value)
                if not isinstance(value, (str, int)) or part.format_spec is not None or part.conversion != -1:
                    return OPAQUE
                parts.append(value)
            else:
                parts.append(self.value(part))
        return joined(parts)

    def function_of(self, node: ast.Lambda) -> Any:
        return Inner(node, self.names)

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Any:
        inner = type(self)(self.work, self.function, self.cls, dict(self.names), self.depth + 1)
        made: list[Any] = []
        if not inner.comprehended(node, made, 0):
            return OPAQUE
        return set(made) if isinstance(node, ast.SetComp) else dict(made) if isinstance(node, ast.DictComp) else made

    def comprehended(self, node: Any, made: list[Any], at: int) -> bool:
        if at == len(node.generators):
            pair = isinstance(node, ast.DictComp)
            made.append((self.value(node.key), self.value(node.value)) if pair else self.value(node.elt))
            return True
        part = node.generators[at]
        items = self.value(part.iter)
        if items is OPAQUE:
            return False
        for item in self.items_of(items):
            self.bind(part.target, item)
            tests = [self.value(test) for test in part.ifs]
            if any(test is OPAQUE for test in tests):
                return False
            if all(self.truth(test) for test in tests) and not self.comprehended(node, made, at + 1):
                return False
        return True

    def attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id not in self.names:
            found = self.outside(node)
            if found is not OPAQUE:
                return found
        owner = self.value(node.value)
        return self.attribute_of(owner, node.attr)

    def attribute_of(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Stub):
            return self.stub_attribute(owner, name)
        if isinstance(owner, Array):
            if name == "shape":
                return owner.shape
            if name in ("ndim", "T"):
                return owner.ndim if name == "ndim" else METHODS["t"](owner)
            return OPAQUE
        if isinstance(owner, External):
            return External(f"{owner.name}.{name}")
        if isinstance(owner, ClassModel):
            method = owner.method(name)
            if method is not None:
                return Bound(method, None, owner)
            attribute = owner.attribute(name)
            value = attribute.file.value(attribute.value) if attribute is not None and attribute.value else UNKNOWN
            return value if value is not UNKNOWN and known(value) else OPAQUE
        return OPAQUE

    def stub_attribute(self, owner: Stub, name: str) -> Any:
        if name in owner.attributes:
            return owner.attributes[name]
        method = owner.cls.method(name) if owner.cls is not None else None
        if method is not None:
            bound = Bound(method, owner, owner.cls)
            is_property = any(d.rpartition(".")[2] in ("property", "cached_property") for d in method.decorators)
            return self.work.follow(bound, [], {}, self.depth) if is_property else bound
        if owner.open_ended:
            return OPAQUE
        raise RefusedError
