"""A constructor as one list of statements: methods that make, change or fill the denoiser are written out."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence

from scaffold.port.building_calls import placed
from scaffold.port.names import Defined, External, Scope
from scaffold.port.slicing import (
    Owner,
    UnclearError,
    arguments_of,
    assigned_by,
    following,
    methods_named,
    name_of,
    own_names,
)
from scaffold.source.syntax import walk_tree, without_docstring

# Contexts under which modules are built that say where, or under which of the engine's settings: training has one.

_NAMES = ("set_current_diffusion_config", "set_current_vllm_config", "nullcontext")


def surrounds(scope: Scope, item: ast.withitem, beside: Sequence[ast.stmt]) -> bool:
    """Tell whether a ``with`` may be left out.

    Args:
        scope: names where it stands.
        item: its context.
        beside: the statements of the same block, where a name may be given the context before.
    """
    if item.optional_vars is not None:
        return False
    context: ast.expr = item.context_expr
    if isinstance(context, ast.Name):
        values = [
            node.value
            for node in beside
            if isinstance(node, ast.Assign) and [name_of(target) for target in node.targets] == [context.id]
        ]
        if len(values) != 1:
            return False
        context = values[0]
    if isinstance(context, ast.IfExp):
        return _is_surrounding(scope, context.body) and _is_surrounding(scope, context.orelse)
    return _is_surrounding(scope, context)


def _is_surrounding(scope: Scope, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    text = ast.unparse(node.func)
    origin = scope.origin(text.partition(".")[0])
    if isinstance(origin, External) and origin.path == "torch":
        return text == "torch.device"
    return isinstance(origin, (Defined, External)) and text.rpartition(".")[2] in _NAMES


LOADER = "load_weights"
SOURCES = "self.weights_sources"
_DEPTH = 6


class Flattener:
    """Puts the bodies of methods in place of their calls, as far as they have to do with the denoiser.

    Args:
        scope: names of the pipeline's module.
        owners: the pipeline's classes in that module, in the order of lookup.
        attribute: the attribute that holds the denoiser.
        denoiser: its class.
    """

    def __init__(self, scope: Scope, owners: Sequence[Owner], attribute: str, denoiser: Defined) -> None:
        self.scope, self.owners, self.denoiser = scope, owners, denoiser
        self.held = f"self.{attribute}"
        self._holding: set[str] = set()
        self._written: set[str] = set()
        self._depth = 0

    def constructor(self, node: ast.FunctionDef) -> list[ast.stmt]:
        """Return the statements that build the denoiser and give it its weights.

        Where the constructor does not make it, and asks for no weights either, the pipeline's loader does.

        Raises:
            UnclearError: a method's value depends on where it returns, or two things go by one name.
        """
        found = self._block(without_docstring(node.body))
        self._written.add(node.name)
        if self.held not in assigned_by(found):
            if not _asks_for_nothing(found) or any(SOURCES[5:] in _names(owner.node) for owner in self.owners):
                raise UnclearError(self.held)
            loader = next((method for _, method in methods_named(self.owners, LOADER)), None)
            if loader is None:
                raise UnclearError(LOADER)
            found += self._inlined(ast.parse(f"self.{LOADER}(())", mode="eval").body, loader, None)
        return self._one_name(found)

    def others(self, node: ast.ClassDef) -> ast.ClassDef:
        """Return a class with the methods whose statements are not among those of the constructor."""
        body: list[ast.stmt] = [
            inner for inner in node.body if isinstance(inner, ast.FunctionDef) and inner.name not in self._written
        ]
        return ast.ClassDef(node.name, [], [], body or [ast.Pass()], [])

    def method_of(self, call: ast.expr) -> ast.FunctionDef | None:
        """Return the method that ``self.method(…)`` or ``Pipeline.method(…)`` calls."""
        func = call.func if isinstance(call, ast.Call) else None
        if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
            return None
        if func.value.id != "self" and func.value.id not in {owner.node.name for owner in self.owners}:
            return None
        return next((method for _, method in methods_named(self.owners, func.attr)), None)

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        written: list[ast.stmt] = []
        for statement in statements:
            with following(statement):
                written += self._statement(statement, statements)
        return written

    def _statement(self, node: ast.stmt, beside: Sequence[ast.stmt]) -> list[ast.stmt]:
        if isinstance(node, ast.With) and all(surrounds(self.scope, item, beside) for item in node.items):
            return self._block(node.body)
        if isinstance(node, ast.Try) and not node.finalbody and not node.orelse and _only_tells(node):
            return self._block(node.body)
        if isinstance(node, ast.If):
            orelse = self._block(node.orelse)
            return [ast.If(node.test, self._block(node.body) or [ast.Pass()], orelse)]
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            target = node.target if isinstance(node, ast.AnnAssign) else target
            if target is not None:
                method = self.method_of(placed(node.value))
                if method is not None and self._leads(method, placed(node.value)):
                    return self._inlined(placed(node.value), method, target)
                if isinstance(target, ast.Name) and self._makes(node.value):
                    self._holding.add(target.id)
        if isinstance(node, ast.Assign) and SOURCES in {name_of(target) for target in node.targets}:
            return [*self._sources(node)]
        if isinstance(node, ast.Expr):
            method = self.method_of(node.value)
            if method is not None and self._leads(method, node.value):
                return self._inlined(node.value, method, None)
        return [copy.deepcopy(node)]

    def _inlined(self, call: ast.expr, method: ast.FunctionDef, target: ast.expr | None) -> list[ast.stmt]:
        """Return a method's statements, its parameters and its value assigned."""
        assert isinstance(call, ast.Call)
        self._depth += 1
        if self._depth > _DEPTH:
            raise UnclearError(method.name)
        self._written.add(method.name)
        start = method.name.lstrip("_")
        given, renamed = list(arguments_of(call, method)), own_names(method, start)
        for name, value in given:
            if isinstance(value, ast.Name) and value.id in self._holding:
                self._holding.add(f"{start}_{name}")
        body = self._block(without_docstring(renamed))
        returned = None
        if body and isinstance(body[-1], ast.Return):
            returned = body.pop().value  # type: ignore[attr-defined]
        if any(isinstance(inner, ast.Return) for statement in body for inner in _outside_functions(statement)):
            raise UnclearError(f"{method.name} returns early")
        self._depth -= 1
        before: list[ast.stmt] = [
            ast.Assign([ast.Name(f"{start}_{name}", ast.Store())], copy.deepcopy(value)) for name, value in given
        ]
        after: list[ast.stmt] = []
        if target is not None:
            if returned is None:
                raise UnclearError(f"{method.name} returns nothing")
            after = _assigned(target, returned)
            for statement in after:
                assert isinstance(statement, ast.Assign)
                into, value = statement.targets[0], placed(statement.value)
                if isinstance(into, ast.Name) and isinstance(value, ast.Name) and value.id in self._holding:
                    self._holding.add(into.id)
        return [*before, *body, *after]

    def _leads(self, method: ast.FunctionDef, call: ast.expr, depth: int = 0) -> bool:
        """Tell whether a method makes the denoiser, or is given it, or changes it."""
        if isinstance(call, ast.Call) and any(
            isinstance(given, ast.Name) and given.id in self._holding
            for given in (*call.args, *(keyword.value for keyword in call.keywords))
        ):
            return True
        for node in walk_tree(method):
            if isinstance(node, ast.expr) and (self._makes(node) or name_of(node) == self.held):
                return True
            inner = self.method_of(node) if isinstance(node, ast.Call) else None
            if inner is not None and inner is not method and depth < _DEPTH:
                if self._leads(inner, ast.Constant(None), depth + 1):
                    return True
        return False

    def _makes(self, node: ast.expr) -> bool:
        """Tell whether this is ``Denoiser(…)`` or ``Denoiser.from_…(…)``."""
        made = placed(node)
        if not isinstance(made, ast.Call):
            return False
        func = made.func.value if isinstance(made.func, ast.Attribute) else made.func
        return isinstance(func, ast.Name) and self.scope.origin(func.id) == self.denoiser

    def _sources(self, node: ast.Assign) -> Iterator[ast.stmt]:
        """Yield the assignment of the sources of weights, functions of the module that make one written out."""
        flattener = self

        class Written(ast.NodeTransformer):
            def visit_Call(self, call: ast.Call) -> ast.AST:
                origin = flattener.scope.origin(call.func.id) if isinstance(call.func, ast.Name) else None
                if not isinstance(origin, Defined) or origin.module != flattener.scope.info.name:
                    return self.generic_visit(call)
                made = flattener.scope.info.definitions.get(origin.name)
                if not isinstance(made, ast.FunctionDef) or "ComponentSource" not in ast.unparse(made):
                    return call
                given = dict(arguments_of(call, made, bound=False))
                last = made.body[-1]
                if not isinstance(last, ast.Return) or last.value is None or assigned_by(made.body):
                    raise UnclearError(made.name)

                class Given(ast.NodeTransformer):
                    def visit_Name(self, name: ast.Name) -> ast.AST:
                        return copy.deepcopy(given.get(name.id, name))

                found = Given().visit(copy.deepcopy(last.value))
                assert isinstance(found, ast.AST)
                return found

        found = Written().visit(copy.deepcopy(node))
        assert isinstance(found, ast.stmt)
        yield found

    def _one_name(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements with the attribute in place of local names that hold the denoiser.

        Raises:
            UnclearError: such a name holds something else, too.
        """
        names: set[str] = set()
        while True:
            more = {
                value.id
                for statement in statements
                for node in walk_tree(statement)
                if isinstance(node, ast.Assign)
                for target in node.targets
                if name_of(target) == self.held or (isinstance(target, ast.Name) and target.id in names)
                if isinstance(value := placed(node.value), ast.Name)
            }
            more |= {name for name in self._holding if name in {f for s in statements for f in assigned_by([s])}}
            if more <= names:
                break
            names |= more
        for name in names:
            if sum(_stores(statement, name) for statement in statements) != 1:
                raise UnclearError(name)
        attribute = self.held.removeprefix("self.")

        class Renamer(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                if node.id not in names:
                    return node
                return ast.copy_location(ast.Attribute(ast.Name("self", ast.Load()), attribute, node.ctx), node)

        return [ast.fix_missing_locations(Renamer().visit(statement)) for statement in statements]


def _assigned(target: ast.expr, value: ast.expr) -> list[ast.stmt]:
    """Return ``target = value``, part by part where both are tuples."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [ast.Assign([one], other) for one, other in zip(target.elts, value.elts, strict=True)]
    return [ast.Assign([target], value)]


def _only_tells(node: ast.Try) -> bool:
    """Tell whether what goes wrong in a block is told with other words, and no more."""
    return all(isinstance(handler.body[-1], ast.Raise) and len(handler.body) == 1 for handler in node.handlers)


def _asks_for_nothing(statements: Sequence[ast.stmt]) -> bool:
    """Tell whether the pipeline has no sources of weights, so that the engine streams nothing to it."""
    values = [
        node.value
        for statement in statements
        for node in walk_tree(statement)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        if SOURCES in {name_of(target) for target in (node.targets if isinstance(node, ast.Assign) else [node.target])}
    ]
    return all(isinstance(value, (ast.List, ast.Tuple)) and not value.elts for value in values)


def _names(node: ast.ClassDef) -> set[str]:
    """Return what a class defines in its body."""
    functions = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return functions | {name for inner in node.body for name in assigned_by([inner]) if "." not in name}


def _outside_functions(node: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield from _outside_functions(child)


def _stores(statement: ast.stmt, name: str) -> int:
    return sum(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in walk_tree(statement)
    )
