"""Syntax of one module: an index of its nodes, and the bindings of each name at its place, by Python's scope rules."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeVar

from scaffold.upstream.exports import absolute_module

Node = TypeVar("Node", bound=ast.AST)


class Index:
    """An index of the nodes of a module; built without recursion.

    Args:
        tree: the parsed module.
    """

    def __init__(self, tree: ast.Module) -> None:
        order: list[ast.AST] = []
        parents: list[int] = []
        ends: list[int] = []
        positions: dict[ast.AST, int] = {}
        typed: defaultdict[type[ast.AST], list[int]] = defaultdict(list)
        stack: list[tuple[ast.AST, int]] = [(tree, -1)]
        pop, push, known, syntax = stack.pop, stack.append, _FIELDS, ast.AST
        here, last = 0, -1
        while stack:
            node, parent = pop()
            while last != parent:
                ends[last], last = here, parents[last]
            kind = node.__class__
            positions[node] = last = here
            order.append(node)
            parents.append(parent)
            ends.append(0)
            typed[kind].append(here)
            for name in known[kind] if kind in known else _fields(kind):
                value = getattr(node, name, None)
                if value.__class__ is list:
                    for child in reversed(value):
                        if isinstance(child, syntax):
                            push((child, here))
                elif isinstance(value, syntax):
                    push((value, here))
            here += 1
        while last >= 0:
            ends[last], last = here, parents[last]
        self._order, self._parents, self._positions, self._ends = order, parents, positions, ends
        self._typed = typed

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node that holds ``node``."""
        at = self._parents[self._positions[node]]
        return None if at < 0 else self._order[at]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around ``node``, innermost first."""
        at = self._parents[self._positions[node]]
        while at >= 0:
            yield self._order[at]
            at = self._parents[at]

    def contains(self, outer: ast.AST, inner: ast.AST) -> bool:
        """Whether ``inner`` is ``outer`` or lies in it."""
        at = self._positions.get(inner)
        start = self._positions.get(outer)
        return at is not None and start is not None and start <= at < self._ends[start]

    def walk(self, node: ast.AST) -> list[ast.AST]:
        """Return ``node`` and all nodes in it, in preorder."""
        start = self._positions[node]
        return self._order[start : self._ends[start]]

    def own(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes in ``node`` that do not belong to a function, lambda or class inside it."""
        start = self._positions[node]
        at, end = start + 1, self._ends[start]
        while at < end:
            inner = self._order[at]
            yield inner
            at = self._ends[at] if inner.__class__ in _NESTED else at + 1

    def nodes(self, kind: type[Node], within: ast.AST | None = None) -> list[Node]:
        """Return the nodes of exactly that type, in preorder; with ``within``, only those in it."""
        places = self._typed.get(kind, [])
        if within is not None:
            start = self._positions[within]
            places = places[bisect_left(places, start) : bisect_left(places, self._ends[start])]
        return [self._order[at] for at in places]  # type: ignore[misc]


_NESTED = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
# All nodes share the objects of contexts and operators, which have no position.
_SHARED = frozenset(("ctx", "op", "ops", "lineno", "col_offset", "end_lineno", "end_col_offset"))
# Text and numbers in every release of Python; the value of a constant is one too.
_PLAIN = frozenset(
    ("arg", "asname", "attr", "conversion", "id", "is_async", "level", "module", "simple", "type_comment")
)


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the fields that may hold nodes, last first."""
    names = () if kind is ast.Constant else reversed(kind._fields)
    found = _FIELDS[kind] = tuple(name for name in names if name not in _SHARED and name not in _PLAIN)
    return found


Kind = Literal["parameter", "variable", "import", "function", "class"]
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = frozenset(
    (ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.ExceptHandler)
)


class Binding(NamedTuple):
    """One place that binds a name.

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


class LexicalScopes:
    """Bindings of every scope of one module, collected when first asked for.

    Args:
        index: the module's nodes.
        package: the dotted package from which relative imports start.
    """

    def __init__(self, index: Index, package: str) -> None:
        self._index, self.package = index, package
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

    def _collect(self, scope: ast.AST) -> Iterator[tuple[str, Binding]]:
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            arguments = scope.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                yield argument.arg, Binding("parameter", argument)
            for extra in (arguments.vararg, arguments.kwarg):
                if extra is not None:
                    yield extra.arg, Binding("parameter", extra)
        for node in self._index.own(scope):
            # Most nodes bind nothing, and a set lookup is faster than a chain of isinstance.
            if node.__class__ not in _BINDING:
                continue
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Store) and not self._in_comprehension(node, scope):
                    yield node.id, Binding("variable", node, value=assigned(self._index, node))
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
        module = absolute_module(self.package, node)
        for alias in node.names:
            if alias.name == "*":
                if module is not None and (module, node) not in self.stars:
                    self.stars.append((module, node))
                continue
            target = f"{module}.{alias.name}" if module is not None else None
            yield alias.asname or alias.name, Binding("import", node, target)

    def _in_comprehension(self, node: ast.AST, scope: ast.AST) -> bool:
        for outer in self._index.ancestors(node):
            if outer is scope:
                return False
            if isinstance(outer, COMPREHENSIONS):
                return not isinstance(self._index.parent(node), ast.NamedExpr)
        return False


def bound_names(text: str) -> set[str]:
    """Return every name that a module binds somewhere; ``*`` where it imports all of another.

    Raises:
        SyntaxError: it is no Python.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def assigned(index: Index, target: ast.AST) -> ast.expr | None:
    """Return the expression of ``target = expression``, also with an annotation or ``:=``; None for anything else."""
    statement = index.parent(target)
    if isinstance(statement, ast.Assign) and target in statement.targets:
        return statement.value
    if isinstance(statement, (ast.AnnAssign, ast.NamedExpr)) and statement.target is target:
        return statement.value
    return None


def _outside_of(scope: ast.AST, child: ast.AST) -> bool:
    """Whether a direct child of a scope's node is evaluated outside of it: decorators, defaults, bases."""
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return child in scope.decorator_list or child is scope.returns or isinstance(child, ast.arguments)
    if isinstance(scope, ast.Lambda):
        return isinstance(child, ast.arguments)
    if isinstance(scope, ast.ClassDef):
        return child in scope.decorator_list or child in scope.bases or child in scope.keywords
    return False
