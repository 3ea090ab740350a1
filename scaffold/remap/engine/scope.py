"""Names at the top of a module: its own, imported ones, and those of a package given by its trees."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from scaffold.inspect.program.modules import Definition, Import, ModuleGraph, ModuleInfo


@dataclass(eq=False)
class Scope:
    """The global scope that a function sees."""

    file: str
    definitions: Mapping[str, Definition]
    imports: Mapping[str, Import]
    stars: tuple[str, ...] = ()
    info: ModuleInfo | None = None
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)


class Scopes:
    """Makes scopes: of vllm-omni's modules, and of the package's."""

    def __init__(self, graph: ModuleGraph, package: Mapping[str, ast.Module]) -> None:
        self.graph = graph
        self._package = {name: self._read(name, tree) for name, tree in package.items()}
        self._known: dict[str, Scope] = {}

    def of(self, info: ModuleInfo) -> Scope:
        """Return the scope of a module of vllm-omni."""
        if info.name not in self._known:
            self._known[info.name] = Scope(info.file, info.definitions, info.imports, tuple(info.stars), info)
        return self._known[info.name]

    def find(self, module: str) -> Scope | None:
        """Return the scope of a module by its dotted name; the package's go by their last name."""
        info = self.graph.find(module)
        return self.of(info) if info is not None else self._package.get(module.rpartition(".")[2])

    def package(self, name: str) -> Scope:
        """Return the scope of one module of the package."""
        return self._package[name]

    def _read(self, name: str, tree: ast.Module) -> Scope:
        info = ModuleInfo(f"package.{name}", f"{name}.py", "package")
        definitions: dict[str, Definition] = {}
        imports: dict[str, Import] = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                definitions[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        definitions[target.id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                definitions[node.target.id] = node.value
            elif isinstance(node, ast.Import | ast.ImportFrom):
                ModuleGraph.bind_imports(info, node, imports)
        return Scope(info.file, definitions, imports)
