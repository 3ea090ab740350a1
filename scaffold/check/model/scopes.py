"""What a name means where it stands: parameter, variable, import, function or class, in Python's scope order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal, NamedTuple

from scaffold.check.model.index import Index

Kind = Literal["parameter", "variable", "import", "function", "class"]
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = frozenset(
    (ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.ExceptHandler)
)


class Binding(NamedTuple):
    """One place that gives a name its meaning.

    Attributes:
        kind: what it is bound to.
        node: the statement, parameter or target.
        target: for an import, the absolute dotted name.
        value: for ``name = expression`` (also with an annotation or ``:=``), the expression; None for loops,
            unpacking, ``with``, augmented assignment and the rest.
    """

    kind: Kind
    node: ast.AST
    target: str | None = None
    value: ast.expr | None = None


class Scopes:
    """Bindings of every scope of one module, collected when first asked for.

    Args:
        index: the module's nodes.
        module: its dotted name, for relative imports.
        is_package: whether the file is an ``__init__.py``.
    """

    def __init__(self, index: Index, module: str, is_package: bool) -> None:
        self._index = index
        self._package = module if is_package else module.rpartition(".")[0]
        self._scopes: dict[ast.AST, dict[str, list[Binding]]] = {}
        self._frames: dict[ast.AST, ast.AST | None] = {}
        self._found: dict[tuple[str, ast.AST | None], list[Binding]] = {}
        self._comprehensions: dict[ast.AST, dict[str, ast.Name]] = {}
        self.stars: list[tuple[str, ast.ImportFrom]] = []

    def bindings(self, scope: ast.AST) -> dict[str, list[Binding]]:
        """Return name -> bindings, in the order of the text, of one scope."""
        found = self._scopes.get(scope)
        if found is None:
            found = self._scopes[scope] = {}
            for name, binding in self._collect(scope):
                found.setdefault(name, []).append(binding)
        return found

    def scope_of(self, node: ast.AST) -> ast.AST:
        """Return the function, lambda, class or module whose body holds ``node``."""
        frame = self._frame(node)
        while frame is not None and isinstance(frame, COMPREHENSIONS):
            node, frame = frame, self._frame(frame)
        return frame if frame is not None else node

    def lookup(self, name: str, at: ast.AST) -> list[Binding]:
        """Return what ``name`` is bound to where node ``at`` stands; empty for a builtin or a star import."""
        start = self._frame(at)
        key = (name, start)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._search(name, start)
        return found

    def _search(self, name: str, frame: ast.AST | None) -> list[Binding]:
        first = True
        while frame is not None:
            if isinstance(frame, COMPREHENSIONS):
                target = self._targets(frame).get(name)
                if target is not None:
                    return [Binding("variable", target)]
            else:
                # A class body is not a scope for the functions inside it.
                found = self.bindings(frame).get(name) if first or not isinstance(frame, ast.ClassDef) else None
                if found:
                    return found
                first = False
            frame = self._frame(frame)
        return []

    def _frame(self, node: ast.AST) -> ast.AST | None:
        """Return the innermost scope or comprehension in which ``node`` is evaluated; None for the module itself."""
        passed = []
        found: ast.AST | None = None
        while True:
            if node in self._frames:
                found = self._frames[node]
                break
            passed.append(node)
            outer = self._index.parent(node)
            if outer is None or isinstance(outer, COMPREHENSIONS):
                found = outer
                break
            if isinstance(outer, SCOPES) and not _outside_of(outer, node):
                found = outer
                break
            node = outer
        for inner in passed:
            self._frames[inner] = found
        return found

    def _targets(self, comprehension: ast.AST) -> dict[str, ast.Name]:
        found = self._comprehensions.get(comprehension)
        if found is None:
            assert isinstance(comprehension, COMPREHENSIONS)
            found = self._comprehensions[comprehension] = {
                target.id: target
                for generator in comprehension.generators
                for target in self._index.nodes(ast.Name, generator.target)
            }
        return found

    def absolute(self, node: ast.ImportFrom) -> str | None:
        """Return the dotted module that ``from … import`` names; None where it climbs out of the tree."""
        if not node.level:
            return node.module
        parts = self._package.split(".") if self._package else []
        if node.level - 1 > len(parts):
            return None
        parts = parts[: len(parts) - (node.level - 1)]
        return ".".join([*parts, *([node.module] if node.module else [])]) or None

    def _collect(self, scope: ast.AST) -> Iterator[tuple[str, Binding]]:
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            arguments = scope.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                yield argument.arg, Binding("parameter", argument)
            for extra in (arguments.vararg, arguments.kwarg):
                if extra is not None:
                    yield extra.arg, Binding("parameter", extra)
        for node in self._index.own(scope):
            # Most nodes bind nothing, and a set tells that sooner than one question for each kind.
            if node.__class__ not in _BINDING:
                continue
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Store) and not self._in_comprehension(node, scope):
                    yield node.id, Binding("variable", node, value=self._assigned(node))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.name, Binding("function", node)
            elif isinstance(node, ast.ClassDef):
                yield node.name, Binding("class", node)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    yield alias.asname or top, Binding("import", node, alias.name if alias.asname else top)
            elif isinstance(node, ast.ImportFrom):
                yield from self._imported(node)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                yield node.name, Binding("variable", node)

    def _imported(self, node: ast.ImportFrom) -> Iterator[tuple[str, Binding]]:
        module = self.absolute(node)
        for alias in node.names:
            if alias.name == "*":
                if module is not None and (module, node) not in self.stars:
                    self.stars.append((module, node))
                continue
            target = f"{module}.{alias.name}" if module is not None else None
            yield alias.asname or alias.name, Binding("import", node, target)

    def _assigned(self, target: ast.Name) -> ast.expr | None:
        statement = self._index.parent(target)
        if isinstance(statement, ast.Assign) and target in statement.targets:
            return statement.value
        if isinstance(statement, (ast.AnnAssign, ast.NamedExpr)) and statement.target is target:
            return statement.value
        return None

    def _in_comprehension(self, node: ast.AST, scope: ast.AST) -> bool:
        for outer in self._index.ancestors(node):
            if outer is scope:
                return False
            if isinstance(outer, COMPREHENSIONS):
                return not isinstance(self._index.parent(node), ast.NamedExpr)
        return False


def _outside_of(scope: ast.AST, child: ast.AST) -> bool:
    """Whether a direct child of a scope's node is evaluated outside of it: decorators, defaults, bases."""
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return child in scope.decorator_list or child is scope.returns or isinstance(child, ast.arguments)
    if isinstance(scope, ast.Lambda):
        return isinstance(child, ast.arguments)
    if isinstance(scope, ast.ClassDef):
        return child in scope.decorator_list or child in scope.bases or child in scope.keywords
    return False
