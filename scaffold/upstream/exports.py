"""Whether a version of vllm-omni has a module, and whether a name can be imported from it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.errors import ScaffoldError
from scaffold.upstream.source import PACKAGE, UpstreamSource

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OWN_NAMES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MAKERS = {"globals", "vars", "locals"}
_HOPS = 12


class Exports:
    """The names of one version; each module is read on first use.

    Args:
        source: the version.
    """

    def __init__(self, source: UpstreamSource) -> None:
        self.source = source
        self._bound: dict[str, tuple[frozenset[str], tuple[str, ...]] | None] = {}

    def lacks_module(self, module: str) -> bool:
        """Whether importing a module certainly fails: there is neither a file nor a folder of that name."""
        path = module.replace(".", "/")
        return self._file(module) is None and not self.source.files(f"{path}/")

    def lacks(self, module: str, name: str) -> bool:
        """Whether ``from module import name`` certainly fails; False if only running the module could tell."""
        if self.lacks_module(module):
            return True
        if name == "*" or self._is_written(module, name):
            return False
        return self.lacks_module(f"{module}.{name}") and not self._may_have(module, name, 0)

    def _is_written(self, module: str, name: str) -> bool:
        """Whether a line of the module binds the name, checked without parsing.

        Such a line in a multi-line string also counts; the name is then not reported as lacking.
        """
        file = self._file(module)
        if file is None or module in self._bound:
            return False
        try:
            text = self.source.read(file)
        except ScaffoldError:
            return False
        return any(f"\n{start} {name}{end}" in text for start in ("class", "def") for end in "(:") or any(
            f"\n{name}{end}" in text for end in (" =", ": ")
        )

    def _may_have(self, module: str, name: str, hops: int) -> bool:
        if module not in self._bound:
            self._bound[module] = self._read(module)
        bound = self._bound[module]
        if bound is None or hops > _HOPS:
            return True
        names, stars = bound
        return name in names or any(
            not f"{star}.".startswith(f"{PACKAGE}.") or self._may_have(star, name, hops + 1)
            for star in stars
            if star != module
        )

    def _file(self, module: str) -> str | None:
        path = module.replace(".", "/")
        return next((file for file in (f"{path}.py", f"{path}/__init__.py") if self.source.exists(file)), None)

    def _read(self, module: str) -> tuple[frozenset[str], tuple[str, ...]] | None:
        """Return names bound at module level, and modules of star imports; None if the text cannot tell."""
        file = self._file(module)
        if file is None:
            return frozenset(), ()  # a namespace package
        try:
            tree = self.source.tree(file)
        except ScaffoldError:
            return None
        package = module if file.endswith("/__init__.py") else module.rpartition(".")[0]
        names: set[str] = set()
        stars: list[str] = []
        for node in _at_module_level(tree):
            if isinstance(node, _SCOPES):
                names.add(node.name)
            elif isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Store):
                    names.add(node.id)
                elif node.id in _MAKERS:
                    return None
            elif isinstance(node, ast.Import):
                names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {alias.asname or alias.name for alias in node.names}
                if any(alias.name == "*" for alias in node.names):
                    stars.append(absolute_module(package, node) or "")
        return None if "__getattr__" in names else (frozenset(names), tuple(stars))


def _at_module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes in the module's own scope: not those inside functions, classes and comprehensions."""
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (*_SCOPES, *_OWN_NAMES)):
            stack.extend(ast.iter_child_nodes(node))


def absolute_module(package: str, node: ast.ImportFrom) -> str | None:
    """Return the absolute module of a ``from … import``; None if a relative import leaves the package."""
    if not node.level:
        return node.module
    parts = package.split(".") if package else []
    if node.level - 1 > len(parts):
        return None
    return ".".join([*parts[: len(parts) - (node.level - 1)], *([node.module] if node.module else [])]) or None
