"""Names of modules' global scopes, followed through imports to their values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from scaffold.source.classes import Classes
from scaffold.source.modules import Import, ModuleGraph, ModuleInfo
from scaffold.source.values import ClassRef, Evidence, External, Func, ModuleRef, Unknown


class Scopes:
    """Looks up names; each is evaluated once.

    Args:
        graph: finds modules.
        evaluate: evaluates an expression in a module's global scope.
        classes: classes of the same modules that are read already.
    """

    def __init__(
        self,
        graph: ModuleGraph,
        evaluate: Callable[[ast.expr, ModuleInfo], Any],
        classes: Classes | None = None,
    ) -> None:
        self.graph, self.evaluate = graph, evaluate
        self.classes = classes or Classes(evaluate)
        self._known: dict[tuple[str, str], Any] = {}
        self.changed: Callable[[Any], Any] = lambda value: value  # what a value is that the text changes later

    def lookup(self, module: ModuleInfo, name: str) -> Any:
        """Return the value of a name of a module; None where it has none."""
        key = (module.name, name)
        if key in self._known:
            return self._known[key]
        self._known[key] = Unknown("recursive definition")
        value = self._find(module, name)
        if value is None:
            del self._known[key]
        else:
            self._known[key] = value
        return value

    def _find(self, module: ModuleInfo, name: str) -> Any:
        node = module.definitions.get(name)
        if node is not None:
            at = Evidence(module.file, node.lineno)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return Func(node, module, at=at)
            if isinstance(node, ast.ClassDef):
                return ClassRef(self.classes.get(node, module), at=at)
            value = self.evaluate(node, module)
            return self.changed(value) if name in module.filled else value
        bound = module.imports.get(name)
        if bound is not None:
            return self.imported(bound)
        for star in module.stars:
            target = self.graph.find(star)
            if target is not None and not name.startswith("_"):
                value = self.lookup(target, name)
                if value is not None:
                    return value
        return None

    def imported(self, bound: Import) -> Any:
        """Return the value of a name bound by an import."""
        target = self.graph.find(bound.module)
        if bound.name is None:
            return ModuleRef(target) if target is not None else External(bound.module)
        if target is not None:
            value = self.lookup(target, bound.name)
            if value is not None:
                return value
        if self.graph.reads(bound.module):
            submodule = self.graph.find(f"{bound.module}.{bound.name}")
            if submodule is not None:
                return ModuleRef(submodule)
        return External(f"{bound.module}.{bound.name}")

    def member(self, module: ModuleInfo, name: str) -> Any:
        """Return the value of a module's attribute."""
        value = self.lookup(module, name)
        if value is None:
            child = self.graph.find(f"{module.name}.{name}")
            value = ModuleRef(child) if child is not None else Unknown(f"no {name} in {module.name}")
        return value
