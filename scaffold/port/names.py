"""What a name means where it stands: a definition of the source, something outside it, or neither."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import NamedTuple

from scaffold.source.modules import Import, ModuleGraph, ModuleInfo
from scaffold.source.syntax import walk_tree

_DEPTH = 12


class Defined(NamedTuple):
    """A definition of the inspected source."""

    module: str
    name: str


class External(NamedTuple):
    """A dotted path outside of what is followed: a library, or a module of the source itself."""

    path: str


Origin = Defined | External


def resolve(graph: ModuleGraph, module: str, name: str, depth: int = 0) -> Origin | None:
    """Return what a module's global name means; None for builtins and names that nothing binds."""
    info = graph.find(module)
    if info is None or depth > _DEPTH:
        return External(f"{module}.{name}")
    if name in info.definitions:
        return Defined(module, name)
    if name in info.imports:
        return imported(graph, info.imports[name], depth)
    for star in info.stars:
        found = resolve(graph, star, name, depth + 1)
        if isinstance(found, Defined):
            return found
    return None


def imported(graph: ModuleGraph, entry: Import, depth: int = 0) -> Origin:
    """Return what an import binds."""
    if entry.name is None:
        return External(entry.module)
    if graph.find(entry.module) is None:
        return External(f"{entry.module}.{entry.name}")
    found = resolve(graph, entry.module, entry.name, depth + 1)
    return found if found is not None else External(f"{entry.module}.{entry.name}")


@dataclass
class Scope:
    """The names of one function, method or statement: its own ones hide those of its module."""

    graph: ModuleGraph
    info: ModuleInfo
    hidden: frozenset[str] = frozenset()
    imports: dict[str, Import] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: ModuleGraph, info: ModuleInfo, node: ast.AST, *, outer: Scope | None = None) -> Scope:
        """Return the scope of a function's or a statement's own names, inside ``outer``."""
        imports = dict(outer.imports) if outer else {}
        stored: set[str] = set(outer.hidden) if outer else set()
        # The names of a function are those of its parameters and body; its own name belongs outside.
        nodes = [*_parameters(node), *node.body] if isinstance(node, ast.FunctionDef) else [node]
        for inner in (found for top in nodes for found in walk_tree(top)):
            if isinstance(inner, (ast.Import, ast.ImportFrom)):
                ModuleGraph.bind_imports(info, inner, imports)
            elif isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                stored.add(inner.id)
            elif isinstance(inner, ast.arg):
                stored.add(inner.arg)
            elif isinstance(inner, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
                stored |= {inner.name} if inner.name else set()
        return cls(graph, info, frozenset(stored - set(imports)), imports)

    def origin(self, name: str) -> Origin | None:
        """Return what a bare name means here; None for local names and builtins."""
        if name in self.imports:
            return imported(self.graph, self.imports[name])
        if name in self.hidden:
            return None
        return resolve(self.graph, self.info.name, name)


def _parameters(node: ast.FunctionDef) -> list[ast.AST]:
    found = node.args
    named = [*found.posonlyargs, *found.args, *found.kwonlyargs, *filter(None, (found.vararg, found.kwarg))]
    return [ast.arg(arg=entry.arg) for entry in named]
