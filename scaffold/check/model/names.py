"""What names of the tree stand for, across its files."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection

from scaffold.check.model.constants import evaluate
from scaffold.check.model.python import ClassModel, FunctionModel, PythonFile, Resolution
from scaffold.files.layout import CHECKOUT
from scaffold.source.bindings import Binding

_BUILTINS = frozenset(dir(builtins))
_HOPS = 12


class TreeNames(Resolution):
    """Resolves names across files; a subclass provides the files."""

    def __init__(self, outside: Collection[str] = ()) -> None:
        super().__init__(outside)
        self._names: dict[ast.AST, str | None] = {}
        self._definitions: dict[str, tuple[PythonFile, Binding] | None] = {}

    def module(self, name: str) -> PythonFile | None:
        path = self.in_tree(name).replace(".", "/")
        if not path.startswith(("verl_omni/", "examples/", "tests/")) and path != "verl_omni":
            return None
        return self.python(f"{path}.py") or self.python(f"{path}/__init__.py")

    def in_tree(self, name: str) -> str:
        """Return the dotted name that what ``name`` imports has in the tree."""
        return f"{CHECKOUT.prefix}{name}" if name.partition(".")[0] in self.outside else name

    def qualified(self, file: PythonFile, node: ast.AST) -> str | None:
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
            target = targets.pop() if len(targets) == 1 else None
            return self.in_tree(target) if target is not None else None
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
        name = self.qualified(file, node.value if isinstance(node, ast.Subscript) else node)
        return self.class_named(name) if name is not None else None

    def class_named(self, name: str) -> ClassModel | None:
        found = self.definition(name)
        if found is None or found[1].kind != "class":
            return None
        return next((cls for cls in found[0].classes if cls.node is found[1].node), None)

    def function_named(self, name: str) -> FunctionModel | None:
        found = self.definition(name)
        if found is not None:
            return next((f for f in found[0].functions if f.node is found[1].node), None)
        owner, _, method = name.rpartition(".")
        cls = self.class_named(owner) if owner else None
        return cls.method(method) if cls is not None else None

    def value(self, file: PythonFile, node: ast.expr) -> object:
        return evaluate(file, node)

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
