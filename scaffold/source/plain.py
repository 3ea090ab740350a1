"""Concrete Python values: the domain of readers that know all inputs and so decide every condition."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping
from typing import Any

from scaffold.limits.bounded import ITEMS, Budget, compare, joined, method, operate, regular
from scaffold.source.builtin_calls import BUILTINS, WRONG, Builtin
from scaffold.source.classes import Classes
from scaffold.source.frame import Env, Frame
from scaffold.source.interpreter import Handler, Interpreter
from scaffold.source.modules import ModuleGraph
from scaffold.source.values import (
    UNKNOWN,
    Bound,
    ClassRef,
    Evidence,
    External,
    Func,
    Keys,
    ModuleRef,
    Stream,
    UndecidedError,
    Unknown,
)

MAX_FRAMES = 60
MAX_TURNS = 100_000
_CONTAINERS = (str, bytes, list, tuple, set, frozenset, dict, range)
_PLAIN = (int, float, type(None), *_CONTAINERS)
_HAVE_METHODS = (*_PLAIN, Stream, re.Match, re.Pattern)
_TYPES = {f"builtins.{kind.__name__}": kind for kind in (str, int, float, bool, dict, list, tuple, set)}
_MATCH = frozenset({"group", "groups", "start", "end", "match", "search", "fullmatch", "sub", "groupdict"})
_FORMAT = re.compile(r"[<>^=]?[+ -]?\d{0,2}[,_]?[bdoxXs]?")
_TEXT = frozenset(name for name in dir(str) if not name.startswith("_")) - {"format", "format_map", "ljust", "rjust",
                                                                           "center", "zfill", "expandtabs"}  # fmt: skip
_TABLES = frozenset(
    {"get", "items", "keys", "values", "pop", "setdefault", "update", "append", "extend", "add", "discard", "remove"}
    | {"insert", "index", "count", "copy", "clear", "union", "intersection", "difference", "issubset", "sort"}
)


class Plain:
    """Python values; a subclass adds more kinds of values.

    Args:
        graph: the modules that are read.
        budget: the steps that may be taken.
        classes: classes of the same modules that are read already.
    """

    measured = True
    most_rows = ITEMS
    handlers: Mapping[type[ast.AST], Handler] = {}
    builtins: Mapping[str, Builtin] = BUILTINS

    def __init__(self, graph: ModuleGraph, budget: Budget, classes: Classes | None = None) -> None:
        self.run = Interpreter(self, graph, budget, classes)
        self._generators: dict[ast.AST | None, bool] = {}

    # Hooks of subclasses with more kinds of values.
    def get_attr(self, base: Any, name: str, at: Evidence | None = None) -> Any:
        """Return an attribute."""
        if isinstance(base, External):
            return External(f"{base.path}.{name}")
        if isinstance(base, ModuleRef):
            return self.run.scopes.member(base.module, name)
        if isinstance(base, Unknown):
            return base
        return Bound(base, name) if isinstance(base, _HAVE_METHODS) else UNKNOWN

    def has_attr(self, base: Any, name: str) -> Any:
        """Whether a value has an attribute; unknown where the text does not tell."""
        return hasattr(base, name) if isinstance(base, (str, list, dict, tuple, set)) else UNKNOWN

    def set_attr(self, base: Any, name: str, value: Any) -> None:
        """Set an attribute."""

    def is_instance(self, value: Any, kind: Any) -> Any:
        """Whether a value is of a class."""
        named = _TYPES.get(kind.path) if isinstance(kind, External) else None
        return UNKNOWN if named is None else isinstance(value, named)

    def construct(self, cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return an object of a class of the source."""
        return UNKNOWN

    def call_external(self, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of a function of another package."""
        return UNKNOWN

    def call_other(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call of anything else."""
        return func if isinstance(func, Unknown) else UNKNOWN

    def known_method(self, receiver: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of a method of a value that is no object of the source."""
        return self.made_of(args, name)

    def open_if(self, node: ast.If, frame: Frame) -> bool:
        """Handle a condition that is unknown."""
        raise UndecidedError(f"`{ast.unparse(node.test)[:80]}` is not known from the text")

    def item(self, base: Any, key: Any, node: ast.Subscript) -> Any:
        """Return an item of a value that is none of Python's, or under a key that is not known."""
        return UNKNOWN

    def equal(self, left: Any, right: Any) -> Any:
        """Whether two values are equal."""
        return UNKNOWN if isinstance(left, Unknown) or isinstance(right, Unknown) else left == right

    def copied(self, kind: str, value: Any) -> Any:
        """Return a value as a ``list``, ``tuple``, ``set`` or ``dict`` that has more than its items, else None."""
        return None

    def made_of(self, values: list[Any], how: str) -> Any:
        """Return the result of an operation that the domain does not implement."""
        return UNKNOWN

    # Values.
    def place(self, node: ast.AST, frame: Frame) -> None:
        return None

    def constant(self, value: Any, at: Evidence | None) -> Any:
        return value

    def builtin(self, name: str, at: Evidence | None) -> Any:
        return External(f"builtins.{name}") if hasattr(builtins, name) else UNKNOWN

    def sequence(self, kind: str, items: list[Any], exact: bool, at: Evidence | None) -> Any:
        if not exact:
            return UNKNOWN
        if kind == "set":
            return self.make_set(items)
        return tuple(items) if kind == "tuple" else Stream(items) if kind == "generator" else items

    def make_set(self, items: list[Any]) -> Any:
        """Return a set; unknown where an item cannot be in one."""
        return UNKNOWN if any(isinstance(item, (Unknown, list, dict, set)) for item in items) else set(items)

    def table(self, pairs: list[tuple[Any, Any]], at: Evidence | None) -> Any:
        made: dict[Any, Any] = {}
        for key, value in pairs:
            if key is not None:
                if isinstance(key, (Unknown, list, dict, set)):
                    return UNKNOWN
                made[key] = value
            elif isinstance(value, dict):
                made.update(value)
            else:
                return UNKNOWN
        return made

    def mapping(self, rows: list[list[Any]], exact: bool, at: Evidence | None) -> Any:
        return self.table([(key, value) for key, value in rows], at) if exact else UNKNOWN

    def slice(self, parts: list[Any], at: Evidence | None) -> Any:
        return UNKNOWN if any(isinstance(part, Unknown) for part in parts) else slice(*parts)

    def text(self, parts: list[Any], node: ast.JoinedStr, at: Evidence | None) -> Any:
        shown: list[Any] = []
        for part, piece in zip(parts, node.values, strict=True):
            if not isinstance(part, (str, int)):
                return UNKNOWN
            if isinstance(piece, ast.FormattedValue):
                part = repr(part) if piece.conversion == ord("r") else part
                part = part if piece.format_spec is None else _formatted(part, piece.format_spec)
                if part is None:
                    return UNKNOWN
            shown.append(part)
        return joined(shown)

    # Operations.
    def operate(self, kind: type[ast.AST], args: list[Any], at: Evidence | None) -> Any:
        """Apply an operator; unknown where Python would raise."""
        for arg in args:
            if isinstance(arg, Unknown):
                return arg
        if issubclass(kind, ast.Not):
            truth = self.decide(args[0])
            return UNKNOWN if truth is None else not truth
        if issubclass(kind, (ast.USub, ast.UAdd)):
            known = isinstance(args[0], (int, float))
            return (-args[0] if kind is ast.USub else args[0]) if known else UNKNOWN
        if issubclass(kind, (ast.BitXor, ast.BitAnd, ast.BitOr, ast.Sub)):
            args = [set(arg) if isinstance(arg, Keys) else arg for arg in args]
        if not issubclass(kind, ast.operator) or not all(isinstance(arg, _PLAIN) for arg in args):
            return UNKNOWN
        try:
            return operate(kind, *args)
        except WRONG:
            return UNKNOWN

    def compare(self, kind: type[ast.cmpop], left: Any, right: Any, at: Evidence | None) -> Any:
        if kind in (ast.Eq, ast.NotEq):
            same = self.equal(left, right)
            return same if isinstance(same, Unknown) else same == (kind is ast.Eq)
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return UNKNOWN
        if kind in (ast.Is, ast.IsNot):
            same = left is right or (isinstance(left, (str, int, bool)) and left == right)
            return same == (kind is ast.Is)
        try:
            if kind in (ast.In, ast.NotIn):
                # Looked up without measuring: the container was measured when it was made.
                return (left in right) == (kind is ast.In) if isinstance(right, _CONTAINERS) else UNKNOWN
            return compare(kind, left, right) if isinstance(left, _PLAIN) and isinstance(right, _PLAIN) else UNKNOWN
        except WRONG:
            return UNKNOWN

    def one_of(self, kind: type[ast.boolop], kept: list[Any], at: Evidence | None) -> Any:
        if self.decide(kept[-1]) is (kind is ast.Or):
            return kept[-1]
        return UNKNOWN if any(self.decide(value) is None for value in kept) else kept[-1]

    def subscript(self, base: Any, key: Any, node: ast.Subscript, frame: Frame) -> Any:
        if isinstance(key, Unknown) or not isinstance(base, (str, list, tuple, dict)):
            return self.item(base, key, node)
        try:
            return base[key]
        except (IndexError, KeyError, TypeError) as error:
            return self.no_item(key, error)

    def no_item(self, key: Any, error: Exception) -> Any:
        """Handle a table or a list without such an item."""
        return UNKNOWN

    def put(self, base: Any, key: Any, value: Any, target: ast.Subscript, frame: Frame) -> None:
        if isinstance(base, dict) and isinstance(key, Unknown):
            raise UndecidedError("a table is filled under a name that is not known")
        if isinstance(base, dict) or (
            isinstance(base, list) and isinstance(key, int) and -len(base) <= key < len(base)
        ):
            base[key] = value

    def unpack(self, targets: list[ast.expr], value: Any, frame: Frame) -> None:
        count = len(targets)
        parts = self.parts(value, count)
        kinds = [type(item) for item in targets]
        if ast.Starred in kinds:
            begin = kinds.index(ast.Starred)
            after = count - begin - 1
            parts = [*parts[:begin], parts[begin : len(parts) - after], *parts[len(parts) - after :]]
        if len(parts) != count:
            raise UndecidedError(f"{len(parts)} values for {count} names")
        for item, part in zip(targets, parts, strict=True):
            self.run.assign(item, part, frame)

    def parts(self, value: Any, count: int) -> list[Any]:
        """Return the parts that a value unpacks into."""
        return [UNKNOWN] * count if isinstance(value, Unknown) else self.iterate(value)

    def grow(self, kind: type[ast.operator], old: Any, value: Any) -> bool:
        if kind is ast.BitOr and isinstance(old, set) and isinstance(value, (set, frozenset)):
            method(old, "update", value)
        elif kind is ast.Add and isinstance(old, list):
            method(old, "extend", self.iterate(value))
        else:
            return False
        return True

    def keywords(self, value: Any) -> dict[str, Any]:
        return {key: item for key, item in value.items() if isinstance(key, str)} if isinstance(value, dict) else {}

    def argument(self, name: str) -> Any:
        return UNKNOWN

    def result(self, frame: Frame, falls: bool, at: Evidence | None) -> Any:
        node = frame.node
        if node not in self._generators:
            self._generators[node] = _is_generator(node)
        if self._generators[node]:
            return Stream(frame.yields)
        return frame.returns[-1][0] if frame.returns else None

    # Calls.
    def call(self, func: Any, args: list[Any], kwargs: dict[str, Any], at: Evidence | None = None) -> Any:
        if isinstance(func, Func):
            return self.follow(func, args, kwargs)
        if isinstance(func, External):
            known = self.builtins.get(func.path.removeprefix("builtins."))
            return known(self, args, kwargs) if known else self.call_external(func.path, args, kwargs)
        if isinstance(func, Bound):
            return self.call_method(func.receiver, func.name, args, kwargs)
        return self.construct(func, args, kwargs) if isinstance(func, ClassRef) else self.call_other(func, args, kwargs)

    def follow(self, func: Func, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Execute a function of the source."""
        if len(self.run.stack) >= MAX_FRAMES:
            raise UndecidedError("calls nested too deeply")
        frame = self.run.enter(func)
        self.run.bind(func, args, kwargs, frame)
        return self.run.execute(func, frame)

    def call_method(
        self, receiver: Any, name: str, args: list[Any], kwargs: dict[str, Any], at: Evidence | None = None
    ) -> Any:
        if isinstance(receiver, str):
            return self._text_method(receiver, name, args)
        if isinstance(receiver, (dict, list, tuple, set, frozenset)):
            return self._table_method(receiver, name, args)
        if isinstance(receiver, (re.Match, re.Pattern)):
            return _match_method(receiver, name, args)
        func = self.get_attr(receiver, name)
        return (
            self.known_method(receiver, name, args, kwargs)
            if isinstance(func, Bound)
            else self.call(func, args, kwargs)
        )

    def _text_method(self, base: str, name: str, args: list[Any]) -> Any:
        if name not in _TEXT or any(isinstance(a, Unknown) for a in args):
            return UNKNOWN
        args = [tuple(a) if isinstance(a, list) and name in ("startswith", "endswith") else a for a in args]
        if name == "join":
            args = [a.items if isinstance(a, Stream) else a for a in args]
        try:
            return method(base, name, *args)
        except (TypeError, ValueError):
            return UNKNOWN

    def _table_method(self, base: Any, name: str, args: list[Any]) -> Any:
        if name not in _TABLES or not hasattr(base, name):
            return UNKNOWN
        if any(isinstance(a, Unknown) for a in args[:1]) and name in ("get", "pop", "setdefault", "add", "index"):
            return UNKNOWN
        if name in ("update", "extend", "union", "intersection", "difference"):
            args = [a if isinstance(a, dict) else self.iterate(a) for a in args]
        if name == "sort":
            return None
        try:
            result = method(base, name, *args)
        except (TypeError, ValueError, KeyError, IndexError):
            return UNKNOWN
        return Keys(result) if name == "keys" else list(result) if name in ("items", "values") else result

    # What is known of them.
    def decide(self, value: Any) -> bool | None:
        return None if isinstance(value, Unknown) else bool(value) if isinstance(value, _PLAIN) else True

    def is_fixed(self, value: Any) -> bool:
        return True

    def iterate(self, value: Any) -> list[Any]:
        """Return the items of an iterable.

        Raises:
            UndecidedError: they are not known.
        """
        if isinstance(value, (list, tuple, str, dict, range)) and len(value) <= ITEMS:
            return list(value)
        if isinstance(value, (set, frozenset)):
            return sorted(value, key=repr)
        if isinstance(value, Stream):
            rest, value.items = value.items, []
            return rest
        raise UndecidedError("a loop over something that is not known from the text")

    def open_items(self, value: Any, at: Evidence | None) -> list[Any]:
        return []

    def rows(self, value: Any, at: Evidence | None) -> tuple[list[Any], bool]:
        return self.iterate(value), True

    def turns(self, node: ast.For | ast.AsyncFor, source: Any) -> list[Any]:
        return self.iterate(source)

    # Ways that execution takes.
    def other(self, node: ast.AST, frame: Frame) -> Any:
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.Pass, ast.Global, ast.Nonlocal)):
            raise UndecidedError(f"a {type(node).__name__.lower()} statement")
        return UNKNOWN

    def choose(self, node: ast.IfExp, cond: Any, frame: Frame) -> Any:
        truth = self.decide(cond)
        return UNKNOWN if truth is None else self.run.evaluate(node.body if truth else node.orelse, frame)

    def branch(self, node: ast.If, cond: Any, frame: Frame) -> bool:
        truth = self.decide(cond)
        return (
            self.open_if(node, frame) if truth is None else self.run.block(node.body if truth else node.orelse, frame)
        )

    def open_loop(self, node: ast.For | ast.AsyncFor | ast.While, source: Any, frame: Frame) -> bool:
        assert isinstance(node, ast.While)
        return self.run.unroll(node, self._while(node, source, frame), frame)

    def _while(self, node: ast.While, cond: Any, frame: Frame) -> Iterator[None]:
        for _ in range(MAX_TURNS):
            truth = self.decide(cond)
            if truth is None:
                raise UndecidedError("a condition is not known from the text")
            if not truth:
                return
            yield None
            cond = self.run.evaluate(node.test, frame)
        raise UndecidedError("a loop without an end")

    def merge(self, envs: list[Env]) -> Env:
        return envs[-1]

    def leaves(self, node: ast.Return | ast.Continue, value: Any, frame: Frame) -> None:
        return None

    def raises(self, node: ast.Raise, frame: Frame) -> None:
        shown = ast.unparse(node.exc)[:100] if node.exc is not None else "an error"
        raise UndecidedError(f"it raises {shown}")


def _formatted(value: str | int, spec: ast.expr) -> str | None:
    """Format a value with a literal, narrow format; None for any other format."""
    written = spec.values if isinstance(spec, ast.JoinedStr) else []
    text = "".join(str(part.value) for part in written if isinstance(part, ast.Constant))
    if len(written) != 1 or not _FORMAT.fullmatch(text):
        return None
    try:
        return format(value, text)
    except ValueError:
        return None


def _match_method(base: re.Match[str] | re.Pattern[str], name: str, args: list[Any]) -> Any:
    """Methods of a compiled pattern or a match."""
    if name not in _MATCH or not all(isinstance(a, (str, int)) for a in args):
        return UNKNOWN
    try:
        return regular(getattr(base, name), base.pattern if isinstance(base, re.Pattern) else "", *args)
    except (re.error, IndexError, *WRONG):
        return UNKNOWN


def _is_generator(node: ast.AST | None) -> bool:
    pending: list[ast.AST] = list(getattr(node, "body", ()))
    while pending:
        found = pending.pop()
        if isinstance(found, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)):
            pending.extend(ast.iter_child_nodes(found))
    return False
