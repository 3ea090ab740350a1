"""Methods of a pipeline that only compute something become functions: what they read of ``self`` is given to them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence

from scaffold.port.slicing import UnclearError, assigned_by, name_of
from scaffold.source.syntax import walk_tree, without_docstring

Finder = Callable[[ast.expr], ast.FunctionDef | None]


class Lifter(ast.NodeTransformer):
    """Rewrites calls of such methods; ``functions`` holds what they became.

    Args:
        method_of: returns the method that a call calls.
    """

    def __init__(self, method_of: Finder) -> None:
        self.method_of = method_of
        self.functions: dict[str, ast.FunctionDef] = {}
        self._reads: dict[str, tuple[str, ...]] = {}
        self._failed: set[str] = set()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        method = self.method_of(node)
        if method is None or not self._lift(method):
            return node
        given = [
            ast.keyword(_argument(name), ast.parse(f"self.{name}", mode="eval").body)
            for name in self._reads[method.name]
        ]
        function = ast.Name(_function(method.name), ast.Load())
        return ast.copy_location(ast.Call(function, node.args, [*node.keywords, *given]), node)

    def needed(self, statements: Sequence[ast.stmt]) -> list[ast.FunctionDef]:
        """Return the functions that statements lead to, those that others call first."""
        found: dict[str, ast.FunctionDef] = {}
        seen: set[str] = set()

        def follow(nodes: Sequence[ast.AST]) -> None:
            for name in (n.id for top in nodes for n in walk_tree(top) if isinstance(n, ast.Name)):
                function = self.functions.get(name)
                if function is not None and name not in seen:
                    seen.add(name)
                    follow(function.body)
                    found[name] = function

        follow(statements)
        return list(found.values())

    def _lift(self, method: ast.FunctionDef) -> bool:
        """Make a function of a method; tells whether that is possible."""
        name = method.name
        if name in self._reads:
            return True
        if name in self._failed:
            return False
        self._failed.add(name)  # it may call itself
        static = any(ast.unparse(decorator) == "staticmethod" for decorator in method.decorator_list)
        if method.decorator_list and not static:
            return False
        function = copy.deepcopy(method)
        function.name, function.decorator_list = _function(name), []
        if not static:
            function.args.args = function.args.args[1:]
        function.body = without_docstring(function.body) or [ast.Pass()]
        if any(entry.startswith("self.") for entry in assigned_by(function.body)):
            return False
        function.body = [self.visit(statement) for statement in function.body]
        reads = sorted({n[5:] for inner in walk_tree(function) if (n := _own(inner)) is not None})
        try:
            function = _Given().visit(function)
        except UnclearError:
            return False
        function.args.kwonlyargs += [ast.arg(_argument(entry)) for entry in reads]
        function.args.kw_defaults += [None for _ in reads]
        self._failed.discard(name)
        self._reads[name] = tuple(reads)
        self.functions[function.name] = ast.fix_missing_locations(function)
        return True


def _own(node: ast.AST) -> str | None:
    name = name_of(node) if isinstance(node, ast.expr) else None
    return name if name is not None and name.startswith("self.") else None


def _function(name: str) -> str:
    return f"pipeline_{name.lstrip('_')}"


def _argument(name: str) -> str:
    return f"own_{name.lstrip('_')}"


class _Given(ast.NodeTransformer):
    """Turns attributes of ``self`` into parameters."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = _own(node)
        if name is not None:
            return ast.copy_location(ast.Name(_argument(name[5:]), node.ctx), node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "self":
            raise UnclearError("self")
        return node
