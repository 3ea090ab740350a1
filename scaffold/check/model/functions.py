"""A function or method: parameters, returns, calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.check.model.classes import ClassModel
    from scaffold.check.model.pyfile import PythonFile
    from scaffold.check.model.scopes import Binding

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class FunctionModel:
    """A function at module level, or a method.

    Args:
        file: where it stands.
        node: its definition.
        cls: its class; None for a function.

    Attributes:
        reached: answers of `scaffold.check.model.dataflow.reaching`.
    """

    def __init__(self, file: PythonFile, node: FunctionNode, cls: ClassModel | None = None) -> None:
        self.file, self.node, self.cls, self.name = file, node, cls, node.name
        self.reached: dict[ast.Name, list[Binding]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionModel) and other.node is self.node

    def __hash__(self) -> int:
        return hash(self.node)

    @property
    def qualname(self) -> str:
        """Dotted name from the module on."""
        return ".".join([self.file.module, *([self.cls.name] if self.cls else []), self.name])

    @cached_property
    def decorators(self) -> list[str]:
        """Dotted names of the decorators, calls without their arguments; unresolvable ones are left out."""
        found = []
        for decorator in self.node.decorator_list:
            name = self.file.qualified(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name is not None:
                found.append(name)
        return found

    @cached_property
    def bound(self) -> str | None:
        """Name of the first parameter where Python fills it in (``self``, ``cls``); None for plain functions."""
        if self.cls is None or "staticmethod" in self.decorators:
            return None
        arguments = [*self.node.args.posonlyargs, *self.node.args.args]
        return arguments[0].arg if arguments else None

    @cached_property
    def positional(self) -> list[str]:
        """Positional parameters in order, without ``self`` or ``cls``."""
        names = [argument.arg for argument in (*self.node.args.posonlyargs, *self.node.args.args)]
        return names[1:] if self.bound is not None else names

    @cached_property
    def parameters(self) -> list[str]:
        """All named parameters, without ``self`` or ``cls`` and without ``*args`` and ``**kwargs``."""
        return [*self.positional, *(argument.arg for argument in self.node.args.kwonlyargs)]

    @cached_property
    def required(self) -> list[str]:
        """Parameters without a default."""
        arguments = self.node.args
        with_default = len(arguments.defaults)
        head = self.positional[: len(self.positional) - with_default] if with_default else self.positional
        keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return [*head, *(argument.arg for argument, default in keyword if default is None)]

    def default(self, parameter: str) -> ast.expr | None:
        """Return the default of a parameter."""
        arguments = self.node.args
        named = [*arguments.posonlyargs, *arguments.args]
        pairs = list(zip(reversed(named), reversed(arguments.defaults), strict=False))
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
        return next((default for argument, default in pairs if argument.arg == parameter), None)

    def parameter_node(self, parameter: str) -> ast.arg | None:
        """Return the node of a parameter."""
        arguments = self.node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        return next((argument for argument in every if argument is not None and argument.arg == parameter), None)

    @property
    def vararg(self) -> str | None:
        """Name of ``*args``."""
        return self.node.args.vararg.arg if self.node.args.vararg else None

    @property
    def kwarg(self) -> str | None:
        """Name of ``**kwargs``."""
        return self.node.args.kwarg.arg if self.node.args.kwarg else None

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls in the body, those in nested functions and lambdas included; not those in decorators."""
        inside = self.file.index.nodes(ast.Call, self.node)
        around = [*self.node.decorator_list, self.node.args]
        return [call for call in inside if not any(self.file.index.contains(node, call) for node in around)]

    @cached_property
    def assignments(self) -> tuple[tuple[str, ast.expr], ...]:
        """Name and value of every plain assignment in it; ``self.x = …`` as ``.x``."""
        return tuple(_assignments(self.file.index.walk(self.node)))

    @cached_property
    def returns(self) -> list[ast.Return]:
        """Its own return statements, not those of nested functions."""
        return [node for node in self.file.index.own(self.node) if isinstance(node, ast.Return)]

    @cached_property
    def is_abstract(self) -> bool:
        """Whether the body does nothing but raise NotImplementedError, pass or ``...`` (docstring aside)."""
        body = self.node.body
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        if any(name.rpartition(".")[2] == "abstractmethod" for name in self.decorators) or not body:
            return True
        if len(body) > 1 or isinstance(body[0], ast.Pass):
            return len(body) == 1
        if isinstance(body[0], ast.Raise) and body[0].exc is not None:
            raised = body[0].exc.func if isinstance(body[0].exc, ast.Call) else body[0].exc
            return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
        return False

    def nodes(self, kind: type[ast.AST]) -> list[ast.AST]:
        """Return the nodes of a type in the definition."""
        return self.file.index.nodes(kind, self.node)


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of every plain assignment among nodes; ``self.x = …`` as ``.x``."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _targets(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            if node.value is not None:
                yield from _targets(node.target, node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            yield from _targets(node.target, node.iter)


def _targets(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield f".{target.attr}", value
    elif isinstance(target, ast.Subscript):
        yield from _targets(target.value, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        plain = len(values) == len(target.elts)
        for at, item in enumerate(target.elts):
            inner = item.value if isinstance(item, ast.Starred) else item
            yield from _targets(inner, values[at] if plain else value)
