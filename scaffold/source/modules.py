"""Modules of the inspected source: names, imports and re-exports, parsed when first asked for."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from scaffold.errors import ScaffoldError
from scaffold.source.syntax import walk_tree
from scaffold.source.values import Evidence
from scaffold.upstream.exports import absolute_module
from scaffold.upstream.source import UpstreamSource

ACCELERATORS = frozenset({"is_cuda", "is_cuda_alike", "is_rocm", "is_hip", "is_npu", "is_xpu", "is_musa"})
OWN = "package"

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr


@dataclass(frozen=True)
class Import:
    """A name bound by an import: ``module`` and, for ``from`` imports, the name taken from it."""

    module: str
    name: str | None
    line: int


@dataclass
class ModuleInfo:
    name: str
    file: str
    package: str
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, Import] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    tree: ast.Module | None = field(default=None, repr=False, compare=False)
    _places: dict[int, Evidence] = field(default_factory=dict, repr=False, compare=False)

    def place(self, node: ast.AST) -> Evidence:
        """Return where a node of the module stands; of one without a line, the module's first."""
        line = getattr(node, "lineno", 1)
        found = self._places.get(line)
        if found is None:
            found = self._places[line] = Evidence(self.file, line)
        return found

    @cached_property
    def filled(self) -> frozenset[str]:
        """Names whose objects, such as tables, the module changes after their definition."""
        nodes = walk_tree(self.tree) if self.tree is not None else ()
        return frozenset(name for node in nodes if (name := _changed(node)) is not None)


def _changed(node: ast.AST) -> str | None:
    """The name whose table a statement changes: ``NAME.update(…)``, ``NAME[key] = …``, ``NAME |= …``."""
    table: ast.AST | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        table = node.func.value if node.func.attr in ("update", "setdefault", "pop", "clear") else None
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        table = node.value
    elif isinstance(node, ast.AugAssign):
        table = node.target
    return table.id if isinstance(table, ast.Name) else None


def _asks_for_accelerator(node: ast.If) -> bool:
    """Whether a condition is ``platform.is_cuda()`` or the like, with an ``else`` for all other platforms."""
    test = node.test
    return (
        bool(node.orelse)
        and isinstance(test, ast.Call)
        and isinstance(test.func, ast.Attribute)
        and test.func.attr in ACCELERATORS
        and not test.args
    )


class ModuleGraph:
    """Finds modules by dotted name and names in modules.

    Args:
        source: vllm-omni; None where it is not read.
    """

    def __init__(self, source: UpstreamSource | None) -> None:
        self._source = source
        self._modules: dict[str, ModuleInfo | None] = {}
        self._package: dict[str, ModuleInfo] = {}

    @property
    def source(self) -> UpstreamSource:
        """The version that is read."""
        assert self._source is not None
        return self._source

    def hold(self, package: Mapping[str, ast.Module]) -> None:
        """Add the modules of a package of verl-omni, by their last names."""
        for name, tree in package.items():
            self._package[name] = info = ModuleInfo(f"{OWN}.{name}", f"{name}.py", OWN)
            self._collect(info, tree.body)

    def own(self, name: str) -> ModuleInfo:
        """Return a module of the package by its last name."""
        return self._package[name]

    def reads(self, name: str) -> bool:
        """Whether a module would be part of the source."""
        return self._source is not None and name.partition(".")[0] in self._source.packages

    def find(self, name: str) -> ModuleInfo | None:
        """Return the module, or None where it is not part of the source."""
        if name in self._modules:
            return self._modules[name]
        info: ModuleInfo | None = None
        if name.partition(".")[0] in (OWN, "verl_omni"):
            info = self._package.get(name.rpartition(".")[2])
        if self.reads(name):
            assert self._source is not None
            path = name.replace(".", "/")
            for file, package in ((path + ".py", name.rpartition(".")[0]), (path + "/__init__.py", name)):
                if self.source.exists(file):
                    info = self._load(name, file, package)
                    break
        self._modules[name] = info
        return info

    def _load(self, name: str, file: str, package: str) -> ModuleInfo | None:
        try:
            tree = self.source.tree(file)
        except ScaffoldError:
            return None
        info = ModuleInfo(name, file, package, tree=tree)
        self._collect(info, tree.body)
        return info

    def _collect(self, info: ModuleInfo, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                info.definitions[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        info.definitions[target.id] = node.value
            elif isinstance(node, ast.AnnAssign):
                if isinstance(node.target, ast.Name) and node.value is not None:
                    info.definitions[node.target.id] = node.value
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.bind_imports(info, node, info.imports, info.stars)
            elif isinstance(node, ast.If):
                # The branch that normally runs, the one for no particular accelerator, comes last, so that it wins.
                first, last = (node.body, node.orelse) if _asks_for_accelerator(node) else (node.orelse, node.body)
                self._collect(info, first)
                self._collect(info, last)
            elif isinstance(node, ast.Try):
                for handler in node.handlers:
                    self._collect(info, handler.body)
                self._collect(info, node.orelse)
                self._collect(info, node.body)
            elif isinstance(node, ast.With):
                self._collect(info, node.body)

    @staticmethod
    def bind_imports(
        info: ModuleInfo, node: ast.Import | ast.ImportFrom, into: dict[str, Import], stars: list[str] | None = None
    ) -> None:
        """Record the names that an import statement binds."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                into[name] = Import(alias.name if alias.asname else name, None, node.lineno)
            return
        module = absolute_module(info.package, node) or ""
        for alias in node.names:
            if alias.name == "*":
                if stars is not None:
                    stars.append(module)
            else:
                into[alias.asname or alias.name] = Import(module, alias.name, node.lineno)
