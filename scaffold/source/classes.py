"""Classes of the inspected source: bases, method resolution order, attributes, dataclass fields."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from scaffold.source.modules import ModuleInfo
from scaffold.source.syntax import is_own, walk_tree
from scaffold.source.values import ClassRef, External

Method = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class ClassInfo:
    """A class statement; ``bases`` are resolved on first use by ``Classes``."""

    name: str
    module: ModuleInfo
    node: ast.ClassDef
    methods: dict[str, Method] = field(default_factory=dict)
    assigns: dict[str, ast.expr] = field(default_factory=dict)
    fields: dict[str, ast.expr | None] = field(default_factory=dict)
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    nested: dict[str, ast.ClassDef] = field(default_factory=dict)
    mro: list[ClassInfo] = field(default_factory=list)
    external_bases: list[str] = field(default_factory=list)

    @property
    def is_dataclass(self) -> bool:
        for decorator in self.node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if (isinstance(target, ast.Name) and target.id == "dataclass") or (
                isinstance(target, ast.Attribute) and target.attr == "dataclass"
            ):
                return True
        return False

    @cached_property
    def delegate(self) -> str | None:
        """The attribute that ``__getattr__`` delegates to: ``return getattr(self.NAME, name)``."""
        found = self.find_method("__getattr__")
        last = found[1].body[-1] if found is not None and len(found[1].body) == 1 else None
        call = last.value if isinstance(last, ast.Return) else None
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "getattr"):
            return None
        holder = call.args[0] if call.args else None
        return holder.attr if is_own(holder) else None

    def find_method(self, name: str, after: ClassInfo | None = None) -> tuple[ClassInfo, Method] | None:
        """Look a method up along the method resolution order, behind ``after`` if given."""
        for cls in self._order(after):
            if name in cls.methods:
                return cls, cls.methods[name]
            if name in cls.assigns:
                return None
        return None

    def find_assign(self, name: str) -> tuple[ClassInfo, ast.expr] | None:
        """Look a class attribute up along the method resolution order."""
        for cls in self.mro:
            if name in cls.assigns:
                return cls, cls.assigns[name]
            if name in cls.methods:
                return None
        return None

    def find_annotation(self, name: str) -> tuple[ClassInfo, ast.expr] | None:
        for cls in self.mro:
            if name in cls.annotations:
                return cls, cls.annotations[name]
        return None

    def all_fields(self) -> list[tuple[ClassInfo, str, ast.expr | None]]:
        """Dataclass fields in the order of ``__init__``, with their defaults."""
        found: dict[str, tuple[ClassInfo, str, ast.expr | None]] = {}
        for cls in reversed(self.mro):
            for name, default in cls.fields.items():
                found[name] = (cls, name, default)
        return list(found.values())

    def derives_from(self, *names: str) -> bool:
        """Tell whether a base, in the source or outside, has one of these last names."""
        return any(c.name in names or any(b.rpartition(".")[2] in names for b in c.external_bases) for c in self.mro)

    @property
    def is_module(self) -> bool:
        """Whether this is an ``nn.Module`` as far as its bases tell."""
        for cls in self.mro:
            for base in cls.external_bases:
                last = base.rpartition(".")[2]
                if last in ("Module", "ModuleList", "Sequential", "ModelMixin") or last.endswith("PreTrainedModel"):
                    return True
        return False

    def _order(self, after: ClassInfo | None) -> list[ClassInfo]:
        if after is None or after not in self.mro:
            return self.mro
        return self.mro[self.mro.index(after) + 1 :]


class Classes:
    """Makes one ``ClassInfo`` for each class statement.

    Args:
        evaluate: evaluates an expression, such as a base, in a module's global scope.
    """

    def __init__(self, evaluate: Callable[[ast.expr, ModuleInfo], Any]) -> None:
        self._evaluate = evaluate
        self._known: dict[int, ClassInfo] = {}

    def get(self, node: ast.ClassDef, module: ModuleInfo) -> ClassInfo:
        known = self._known.get(id(node))
        if known is not None:
            return known
        info = ClassInfo(node.name, module, node)
        self._known[id(node)] = info
        info.mro = [info]
        self._read_body(info)
        parents: list[ClassInfo] = []
        for base in node.bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            value = self._evaluate(expression, module)
            if isinstance(value, ClassRef):
                parents.append(value.cls)
            else:
                info.external_bases.append(value.path if isinstance(value, External) else ast.unparse(base))
        info.mro = [info, *_merge([*(list(p.mro) for p in parents), list(parents)])]
        return info

    @staticmethod
    def _read_body(info: ClassInfo) -> None:
        for node in info.node.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if not _is_setter(node):
                    info.methods[node.name] = node
            elif isinstance(node, ast.ClassDef):
                info.nested[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        info.assigns[target.id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                info.annotations[node.target.id] = node.annotation
                if node.value is not None:
                    info.assigns[node.target.id] = node.value
                if not _is_of_class(node.annotation):
                    info.fields[node.target.id] = node.value


def _is_of_class(annotation: ast.expr) -> bool:
    """Whether an annotation, or a string in it, names ``ClassVar``."""
    for node in walk_tree(annotation):
        said = node.id if isinstance(node, ast.Name) else getattr(node, "attr", None) or getattr(node, "value", None)
        if isinstance(said, str) and "ClassVar" in said:
            return True
    return False


def _is_setter(node: Method) -> bool:
    return any(isinstance(d, ast.Attribute) and d.attr in ("setter", "deleter") for d in node.decorator_list)


def _merge(sequences: list[list[ClassInfo]]) -> list[ClassInfo]:
    """C3 linearization; an inconsistent hierarchy keeps the first candidate rather than failing."""
    result: list[ClassInfo] = []
    pending = [list(s) for s in sequences if s]
    while pending:
        head = next(
            (s[0] for s in pending if not any(s[0] in other[1:] for other in pending)),
            pending[0][0],
        )
        result.append(head)
        pending = [[c for c in s if c is not head] for s in pending]
        pending = [s for s in pending if s]
    return result
