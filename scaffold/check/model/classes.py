"""A class: bases as far as they resolve, methods and attributes with inheritance."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from scaffold.check.model.functions import FunctionModel

if TYPE_CHECKING:
    from scaffold.check.model.pyfile import PythonFile


class Attribute(NamedTuple):
    """An assignment to an attribute: in the class body, or to ``self.name`` in a method.

    Attributes:
        name: the attribute's.
        value: what is assigned, of ``self.a, self.b = x, y`` its part; None for a bare annotation, a loop, other
            unpacking or ``+=``.
        node: the target.
        file: where it stands.
        method: the method that assigns; None for the class body.
    """

    name: str
    value: ast.expr | None
    node: ast.AST
    file: PythonFile
    method: FunctionModel | None = None


class ClassModel:
    """A class at module level.

    Args:
        file: where it stands.
        node: its definition.
    """

    def __init__(self, file: PythonFile, node: ast.ClassDef) -> None:
        self.file, self.node, self.name = file, node, node.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassModel) and other.node is self.node

    def __hash__(self) -> int:
        return hash(self.node)

    @property
    def qualname(self) -> str:
        """Dotted name from the module on."""
        return f"{self.file.module}.{self.name}"

    @cached_property
    def bases(self) -> list[ClassModel | str | None]:
        """Each base: a class of the tree, else its dotted name, else None where it cannot be resolved."""
        return [self.file.project.class_of(self.file, base) or self.file.qualified(base) for base in self.node.bases]

    @cached_property
    def mro(self) -> list[ClassModel]:
        """The class and its ancestors of the tree, a base after everything that inherits it, as in Python."""
        order: list[ClassModel] = []
        seen: set[ClassModel] = set()
        pending: list[tuple[ClassModel, bool]] = [(self, False)]
        while pending:
            cls, finished = pending.pop()
            if finished:
                order.append(cls)
            elif cls not in seen:
                seen.add(cls)
                pending.append((cls, True))
                # The last base is finished first and so stands last.
                pending += [(base, False) for base in cls.bases if isinstance(base, ClassModel)]
        return order[::-1]

    @cached_property
    def external(self) -> list[str]:
        """Dotted names of ancestors that are not in the tree."""
        return [base for cls in self.mro for base in cls.bases if isinstance(base, str)]

    @cached_property
    def resolved(self) -> bool:
        """Whether every base of every ancestor in the tree has a name."""
        return all(base is not None for cls in self.mro for base in cls.bases) and not any(
            isinstance(base, ast.Starred) for cls in self.mro for base in cls.node.bases
        )

    def derives_from(self, *names: str) -> bool | None:
        """Whether an ancestor has one of the names; None where a base cannot be resolved.

        Args:
            names: class names; one with dots must be equal to the dotted name or to the end of it.
        """
        ancestors = [*(cls.qualname for cls in self.mro[1:]), *self.external]
        if any(name == ancestor or ancestor.endswith("." + name) for name in names for ancestor in ancestors):
            return True
        return False if self.resolved else None

    @cached_property
    def methods(self) -> dict[str, FunctionModel]:
        """Own methods by name; of several with one name the last, as in Python, but a property keeps its getter."""
        found: dict[str, FunctionModel] = {}
        for node in self.file.index.own(self.node):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                method = FunctionModel(self.file, node, self)
                setter = any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)
                if not (setter and node.name in found):
                    found[node.name] = method
        return found

    def method(self, name: str) -> FunctionModel | None:
        """Return the method that the class has, inherited ones from classes of the tree included."""
        return next((cls.methods[name] for cls in self.mro if name in cls.methods), None)

    def super_method(self, name: str, after: ClassModel) -> FunctionModel | None:
        """Return what ``super().name`` is in a method of ``after``, one of the ancestors or the class itself."""
        order = self.mro[self.mro.index(after) + 1 :] if after in self.mro else after.mro[1:]
        return next((cls.methods[name] for cls in order if name in cls.methods), None)

    @cached_property
    def own_attributes(self) -> dict[str, list[Attribute]]:
        """Attributes that the class body assigns."""
        found: dict[str, list[Attribute]] = {}
        for name, bindings in self.file.scopes.bindings(self.node).items():
            for binding in bindings:
                if binding.kind == "variable":
                    found.setdefault(name, []).append(Attribute(name, binding.value, binding.node, self.file))
        return found

    def attribute(self, name: str) -> Attribute | None:
        """Return the last assignment of a class attribute, inherited ones from classes of the tree included."""
        return next((cls.own_attributes[name][-1] for cls in self.mro if name in cls.own_attributes), None)

    @cached_property
    def own_instance_attributes(self) -> dict[str, list[Attribute]]:
        """Assignments to ``self.name`` in the class's own methods."""
        found: dict[str, list[Attribute]] = {}
        index = self.file.index
        for method in self.methods.values():
            owner = method.bound
            for node in index.nodes(ast.Attribute, method.node):
                if not isinstance(node.ctx, ast.Store):
                    continue
                if not (isinstance(node.value, ast.Name) and node.value.id == owner):
                    continue
                statement = index.parent(node)
                value = None
                if isinstance(statement, ast.Assign):
                    value = statement.value if node in statement.targets else None
                elif isinstance(statement, ast.AnnAssign):
                    value = statement.value
                elif isinstance(statement, (ast.Tuple, ast.List)):
                    value = _of_pair(statement, index.parent(statement), node)
                found.setdefault(node.attr, []).append(Attribute(node.attr, value, node, self.file, method))
        return found

    def instance_attributes(self, name: str) -> list[Attribute]:
        """Return the assignments to ``self.name`` in the class and its ancestors of the tree."""
        return [attribute for cls in self.mro for attribute in cls.own_instance_attributes.get(name, [])]

    @cached_property
    def is_dataclass(self) -> bool:
        """Whether ``dataclasses.dataclass`` decorates it."""
        return any(
            self.file.qualified(decorator.func if isinstance(decorator, ast.Call) else decorator)
            in ("dataclasses.dataclass", "pydantic.dataclasses.dataclass")
            for decorator in self.node.decorator_list
        )

    @cached_property
    def fields(self) -> dict[str, Attribute]:
        """Annotated attributes of the class body, inherited ones first: the fields of a dataclass."""
        found: dict[str, Attribute] = {}
        for cls in reversed(self.mro):
            for node in cls.node.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    if "ClassVar" not in ast.dump(node.annotation):
                        found[node.target.id] = Attribute(node.target.id, node.value, node.target, cls.file)
        return found


def _of_pair(targets: ast.Tuple | ast.List, statement: ast.AST | None, target: ast.AST) -> ast.expr | None:
    """Return the i-th value of ``self.a, self.b = x, y`` for its i-th target."""
    value = statement.value if isinstance(statement, ast.Assign) and targets in statement.targets else None
    if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != len(targets.elts):
        return None
    if any(isinstance(part, ast.Starred) for part in (*value.elts, *targets.elts)):
        return None
    return next(part for item, part in zip(targets.elts, value.elts, strict=True) if item is target)
