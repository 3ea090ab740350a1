"""The statements of a class's methods that wanted attributes depend on."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from scaffold.source.modules import ModuleInfo
from scaffold.source.syntax import is_own, walk_tree

CONFIG = "od_config"
_DEPTH = 6


class UnclearError(Exception):
    """The statements cannot be followed.

    Attributes:
        line: of the statement that stops it; 0 where it is none of the source's.
        statement: its first line.
    """

    line, statement = 0, ""


@contextmanager
def following(node: ast.AST) -> Iterator[None]:
    """Name a statement as the one that stops, where it does."""
    try:
        yield
    except UnclearError as error:
        if not error.line and isinstance(node, ast.stmt) and hasattr(node, "lineno"):
            error.line, error.statement = node.lineno, ast.unparse(node).splitlines()[0]
        raise


@dataclass
class Owner:
    """A class and the module that it stands in."""

    info: ModuleInfo
    node: ast.ClassDef


@dataclass
class _Slice:
    """Statements that lead to what is wanted, in reverse."""

    wanted: set[str]
    kept: list[ast.stmt] = field(default_factory=list)


def methods_named(owners: Sequence[Owner], name: str) -> Iterator[tuple[Owner, ast.FunctionDef]]:
    """Yield the methods of a name, in the order of lookup."""
    for owner in owners:
        for node in owner.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                yield owner, node


class Follower:
    """Collects, from the end backwards, the statements that wanted names depend on.

    Args:
        owners: the pipeline's classes.
        made: the attribute that they make.
        casts: tells whether a call that is handed what is made changes no more than its dtype.
        parts: whether assignments to attributes of what is wanted count, too.
    """

    def __init__(
        self, owners: Sequence[Owner], made: str, casts: Callable[[ast.Call], bool], parts: bool = False
    ) -> None:
        self.owners, self.made, self.casts, self.parts = owners, made, casts, parts
        self.depth = 0

    def method(self, node: ast.FunctionDef, wanted: set[str]) -> list[ast.stmt]:
        """Return the statements of a method; its parameters but ``od_config`` and ``prefix`` are not followed.

        Raises:
            UnclearError: something that is wanted is not made by plain statements.
        """
        part = _Slice(set(wanted))
        self._block(_without_returns(node.body), part)
        parameters = {arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)}
        for name in sorted(part.wanted & parameters - {CONFIG}):
            if name == "prefix":
                part.kept.append(ast.parse('prefix = ""').body[0])
            elif name != "self":
                raise UnclearError(name)
        missing = {name for name in part.wanted if name.startswith("self.")} - set(wanted)
        if missing - assigned_by(part.kept):
            raise UnclearError(", ".join(sorted(missing)))
        read = {n.id for kept in part.kept for n in walk_tree(kept) if isinstance(n, ast.Name)}
        return [*(found for found in _imports(node) if _binds(found) & read), *part.kept[::-1]]

    def _block(self, statements: Sequence[ast.stmt], part: _Slice) -> None:
        for statement in reversed(statements):
            with following(statement):
                self._statement(statement, part)

    def _statement(self, node: ast.stmt, part: _Slice) -> None:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name_of(target) for target in targets]
            for target in targets:
                if isinstance(target, ast.Attribute) and f"{ast.unparse(target)}.".startswith(f"{self.made}."):
                    names.append(self.made)  # a part of the denoiser that the pipeline makes
                elif self.parts and isinstance(target, ast.Attribute) and name_of(target) is None:
                    names.append(name_of(target.value))
                elif isinstance(target, ast.Tuple) and all(name_of(element) for element in target.elts):
                    names += [name_of(element) for element in target.elts]
                elif name_of(target) is None and assigned_in(target) & part.wanted:
                    raise UnclearError("several names at once")
            if set(names) & part.wanted and node.value is not None:
                part.kept.append(node)
                part.wanted |= names_read(node.value)
        elif isinstance(node, ast.If):
            body, orelse = _Slice(set(part.wanted)), _Slice(set(part.wanted))
            self._block(node.body, body)
            self._block(node.orelse, orelse)
            if body.kept or orelse.kept:
                part.kept.append(ast.If(node.test, body.kept[::-1] or [ast.Pass()], orelse.kept[::-1]))
                part.wanted |= body.wanted | orelse.wanted | names_read(node.test)
        elif isinstance(node, ast.With) and all(map(_opens, node.items)):
            inner = _Slice(set(part.wanted))
            self._block(node.body, inner)
            if inner.kept:
                part.kept.append(ast.copy_location(ast.With(node.items, inner.kept[::-1]), node))
                part.wanted |= inner.wanted - assigned_by([ast.With(node.items, [])])
                for item in node.items:
                    part.wanted |= names_read(item.context_expr)
        elif isinstance(node, (ast.With, ast.Try, ast.For, ast.While, ast.Match)):
            if assigned_by([node]) & part.wanted or self._inside(node):
                raise UnclearError(type(node).__name__)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call(node.value, part)

    @staticmethod
    def _tells(node: ast.Call) -> bool:
        """Tell whether a call only writes a message."""
        return ast.unparse(node.func).partition(".")[0].lstrip("_").lower() in (
            "logger",
            "logging",
            "warnings",
            "print",
        )

    def _inside(self, node: ast.AST) -> bool:
        """Tell whether a statement goes through modules inside of the denoiser, which it may change."""
        return any(isinstance(n, ast.Attribute) and name_of(n.value) == self.made for n in walk_tree(node))

    def _call(self, node: ast.Call, part: _Slice) -> None:
        """Follow ``self.method(…)`` where the method makes something wanted.

        A method of something wanted may change it and is kept; what is done to the denoiser itself is not understood.
        """
        changed = name_of(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if changed == self.made or any(name_of(given) == self.made for given in node.args):
            if changed == self.made or not self.casts(node):
                raise UnclearError(ast.unparse(node))
            part.kept.append(ast.Expr(node))
            part.wanted |= names_read(node)
            return
        if changed in part.wanted:
            part.kept.append(ast.Expr(node))
            part.wanted |= names_read(node)
            return
        if any(name_of(given) in part.wanted - {CONFIG} for given in node.args) and not self._tells(node):
            part.kept.append(ast.Expr(node))  # it may change what it is given
            part.wanted |= names_read(node)
            return
        name = name_of(node.func) or ""
        if not name.startswith("self.") and self._inside(node) and not self._tells(node):
            raise UnclearError(ast.unparse(node))
        found = next(methods_named(self.owners, name.removeprefix("self.")), None) if name.startswith("self.") else None
        if found is None or self.depth > _DEPTH:
            return
        _, method = found
        if not assigned_by(method.body) & {wanted for wanted in part.wanted if wanted.startswith("self.")}:
            return
        self.depth += 1
        inner = _Slice({wanted for wanted in part.wanted if wanted.startswith("self.")})
        self._block(_without_returns(own_names(method, name.removeprefix("self.").lstrip("_"))), inner)
        inner.kept += _imports(method)
        self.depth -= 1
        start = name.removeprefix("self.").lstrip("_") + "_"
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        for index, parameter in enumerate(method.args.args[1:]):
            given = node.args[index] if index < len(node.args) else named.get(parameter.arg)
            if start + parameter.arg in inner.wanted:
                if given is None:
                    raise UnclearError(parameter.arg)
                target = ast.Name(start + parameter.arg, ast.Store())
                inner.kept.append(ast.Assign([target], given))
                inner.wanted |= names_read(given)
        part.kept += inner.kept
        part.wanted |= inner.wanted


def _opens(item: ast.withitem) -> bool:
    """Tell whether ``with`` opens a file, under a plain name or none."""
    call, name = item.context_expr, item.optional_vars
    opened = (isinstance(call, ast.Call) and name_of(call.func) == "open") or (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "open"
    )
    return opened and (name is None or isinstance(name, ast.Name))


def own_names(method: ast.FunctionDef, start: str) -> list[ast.stmt]:
    """Return a method's statements with its local names apart from those of its caller.

    Raises:
        UnclearError: a function inside of it has a parameter of such a name.
    """
    local = {arg.arg for arg in (*method.args.args, *method.args.kwonlyargs) if arg.arg != "self"} | {
        node.id for node in walk_tree(method) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    inside = {arg for inner in walk_tree(method) if inner is not method for arg in _parameters(inner)}
    if inside & local:
        raise UnclearError(", ".join(sorted(inside & local)))

    class Renamer(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.copy_location(ast.Name(f"{start}_{node.id}", node.ctx), node) if node.id in local else node

    return [Renamer().visit(copy.deepcopy(statement)) for statement in method.body]


def _parameters(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        for inner in walk_tree(node.args):
            if isinstance(inner, ast.arg):
                yield inner.arg


def _imports(method: ast.FunctionDef) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in walk_tree(method) if isinstance(node, (ast.Import, ast.ImportFrom))]


def _binds(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def _without_returns(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return a block whose rest stands below ``if not …`` where ``if …: return`` stood.

    Raises:
        UnclearError: it returns elsewhere.
    """
    found: list[ast.stmt] = []
    for index, node in enumerate(statements):
        if isinstance(node, ast.Return):
            return found
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Return):
            rest = _without_returns(statements[index + 1 :])
            return [*found, ast.If(_negated(node.test), rest or [ast.Pass()], [])]
        if any(isinstance(inner, ast.Return) for inner in walk_tree(node)):
            raise UnclearError("return")
        found.append(node)
    return found


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        return ast.Compare(test.left, [ast.IsNot() if isinstance(test.ops[0], ast.Is) else ast.Is()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


# Names that statements read and assign, attributes of ``self`` among them.


def name_of(node: ast.expr) -> str | None:
    """Return ``x`` or ``self.x``."""
    if isinstance(node, ast.Name):
        return node.id
    if is_own(node):
        return f"self.{node.attr}"
    return None


def names_read(node: ast.expr) -> set[str]:
    """Return the names and attributes of ``self`` that an expression reads."""
    found = {name for inner in walk_tree(node) if isinstance(inner, ast.expr) and (name := name_of(inner))}
    return found - {"self"}


def assigned_in(target: ast.expr) -> set[str]:
    return {name for inner in walk_tree(target) if isinstance(inner, ast.expr) and (name := name_of(inner))}


def assigned_by(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names and attributes of ``self`` that statements assign, in whatever block."""
    found: set[str] = set()
    for statement in statements:
        for node in walk_tree(statement):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    found |= assigned_in(target)
            elif isinstance(node, ast.With):
                found |= {name for item in node.items for name in assigned_in(item.optional_vars or ast.Constant(0))}
    return found


# What the parameters of a function or method are given by one call.


def arguments_of(call: ast.Call, method: ast.FunctionDef, *, bound: bool = True) -> Iterator[tuple[str, ast.expr]]:
    """Yield a call's parameters and what they are given.

    Raises:
        UnclearError: that cannot be told.
    """
    static = any(ast.unparse(decorator) == "staticmethod" for decorator in method.decorator_list)
    if (method.decorator_list and not static) or method.args.vararg or method.args.kwarg or method.args.posonlyargs:
        raise UnclearError(method.name)
    parameters = method.args.args[1:] if bound and not static else method.args.args
    if any(isinstance(given, ast.Starred) for given in call.args) or any(k.arg is None for k in call.keywords):
        raise UnclearError(method.name)
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    defaults = dict(zip([a.arg for a in method.args.args][::-1], method.args.defaults[::-1], strict=False))
    only = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
    defaults |= {entry.arg: default for entry, default in only if default is not None}
    for index, parameter in enumerate([*parameters, *method.args.kwonlyargs]):
        at = index if index < len(parameters) and index < len(call.args) else None
        value = call.args[at] if at is not None else named.get(parameter.arg, defaults.get(parameter.arg))
        if value is None:
            raise UnclearError(parameter.arg)
        yield parameter.arg, value
