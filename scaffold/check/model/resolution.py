"""Names across the files of a tree: imports, re-exports, star imports and aliases, followed to a definition."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.scopes import Binding

if TYPE_CHECKING:
    from scaffold.check.model.classes import ClassModel
    from scaffold.check.model.submodules import Submodule

_BUILTINS = frozenset(dir(builtins))
_HOPS = 12
_CHANGING = {
    "append",
    "extend",
    "insert",
    "update",
    "setdefault",
    "pop",
    "remove",
    "add",
    "clear",
    "popitem",
    "discard",
}


class Resolution(ABC):
    """Resolves names; what holds the files says which there are."""

    def __init__(self) -> None:
        self._changed: dict[PythonFile, frozenset[str]] = {}
        self._names: dict[ast.AST, str | None] = {}
        self._definitions: dict[str, tuple[PythonFile, Binding] | None] = {}
        self.resolved: dict[tuple[ast.Call, ClassModel | None], FunctionModel | ClassModel | None] = {}
        self.submodules: dict[ClassModel, list[Submodule]] = {}
        self.reachable: dict[tuple[FunctionModel, ClassModel | None], list[FunctionModel]] = {}

    @abstractmethod
    def python(self, path: str) -> PythonFile | None:
        """Return a Python file by its path; None where there is none."""

    def module(self, name: str) -> PythonFile | None:
        """Return the file of a dotted module of the tree."""
        path = name.replace(".", "/")
        if not path.startswith(("verl_omni/", "examples/", "tests/")) and path != "verl_omni":
            return None
        return self.python(f"{path}.py") or self.python(f"{path}/__init__.py")

    def qualified(self, file: PythonFile, node: ast.AST) -> str | None:
        """Return the absolute dotted name of a name or attribute chain, None where it is not certain.

        Imports and their aliases are followed (``F.relu`` is ``torch.nn.functional.relu``), plain aliases too
        (``X = torch.float32``), star imports of modules of the tree; a builtin that nothing shadows is itself; what
        the module defines is ``module.name``. Parameters, local variables, ``self`` and ``cls`` have no such name.
        """
        if node not in self._names:
            self._names[node] = self._qualified(file, node, 0)
        return self._names[node]

    def _qualified(self, file: PythonFile, node: ast.AST, hops: int) -> str | None:
        if hops > _HOPS:
            return None
        if isinstance(node, ast.Attribute):
            base = self._qualified(file, node.value, hops + 1)
            return f"{base}.{node.attr}" if base is not None else None
        if not isinstance(node, ast.Name):
            return None
        bindings = file.scopes.lookup(node.id, node)
        if not bindings:
            return self._from_star(file, node.id, hops)
        kinds = {binding.kind for binding in bindings}
        if kinds == {"import"}:
            targets = {binding.target for binding in bindings}
            return targets.pop() if len(targets) == 1 else None
        if len(bindings) > 1:
            return None
        binding = bindings[0]
        at_module = binding in file.names.get(node.id, ())
        if binding.kind == "variable":
            if isinstance(binding.value, (ast.Name, ast.Attribute)):
                return self._qualified(file, binding.value, hops + 1)
            return f"{file.module}.{node.id}" if at_module else None
        return f"{file.module}.{node.id}" if at_module and binding.kind in ("class", "function") else None

    def definition(self, name: str) -> tuple[PythonFile, Binding] | None:
        """Return file and binding of a dotted name of the tree, re-exports followed.

        None where it lies outside of the tree, is a module, or is bound more than once.
        """
        if name not in self._definitions:
            self._definitions[name] = self._definition(name, 0)
        return self._definitions[name]

    def _definition(self, name: str, hops: int) -> tuple[PythonFile, Binding] | None:
        module, _, attribute = name.rpartition(".")
        if not module or hops > _HOPS:
            return None
        file = self.module(module)
        if file is None:
            return None
        bindings = file.names.get(attribute, [])
        if not bindings:
            target = self._from_star(file, attribute, hops, builtin=False)
            return self._definition(target, hops + 1) if target is not None and target != name else None
        if len(bindings) > 1:
            targets = {binding.target for binding in bindings}
            if len(targets) > 1 or None in targets:
                return None
        binding = bindings[0]
        if binding.kind == "import":
            return self._definition(binding.target, hops + 1) if binding.target and binding.target != name else None
        if binding.kind == "variable" and isinstance(binding.value, (ast.Name, ast.Attribute)):
            alias = self.qualified(file, binding.value)
            if alias is not None and alias != name:
                return self._definition(alias, hops + 1)
        return file, binding

    def class_of(self, file: PythonFile, node: ast.AST) -> ClassModel | None:
        """Return the class of the tree that an expression names."""
        name = self.qualified(file, node.value if isinstance(node, ast.Subscript) else node)
        return self.class_named(name) if name is not None else None

    def class_named(self, name: str) -> ClassModel | None:
        """Return the class of the tree of a dotted name."""
        found = self.definition(name)
        if found is None or found[1].kind != "class":
            return None
        return next((cls for cls in found[0].classes if cls.node is found[1].node), None)

    def function_named(self, name: str) -> FunctionModel | None:
        """Return the function of the tree of a dotted name, ``module.Class.method`` included."""
        found = self.definition(name)
        if found is not None:
            return next((f for f in found[0].functions if f.node is found[1].node), None)
        owner, _, method = name.rpartition(".")
        cls = self.class_named(owner) if owner else None
        return cls.method(method) if cls is not None else None

    def changed_names(self, file: PythonFile) -> frozenset[str]:
        """Return names whose value is changed in place somewhere in the file (``x[k] = v``, ``x.append(…)``)."""
        if file not in self._changed:
            self._changed[file] = frozenset(_changed(file))
        return self._changed[file]

    def _from_star(self, file: PythonFile, name: str, hops: int, builtin: bool = True) -> str | None:
        file.names  # noqa: B018  collects the star imports
        outside = False
        for module, _ in file.stars:
            other = self.module(module)
            if other is None:
                outside = True
            elif other is not file and hops <= _HOPS:
                if name in other.names:
                    return f"{module}.{name}"
                nested = self._from_star(other, name, hops + 1, builtin=False)
                if nested is not None:
                    return nested
        return name if builtin and not outside and name in _BUILTINS else None


def _changed(file: PythonFile) -> Iterable[str]:
    for subscript in file.index.nodes(ast.Subscript):
        if isinstance(subscript.ctx, (ast.Store, ast.Del)) and isinstance(subscript.value, ast.Name):
            yield subscript.value.id
    for call in file.index.nodes(ast.Call):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in _CHANGING and isinstance(function.value, ast.Name):
            yield function.value.id
    for augmented in file.index.nodes(ast.AugAssign):
        if isinstance(augmented.target, ast.Name):
            yield augmented.target.id
