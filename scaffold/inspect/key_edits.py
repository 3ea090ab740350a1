"""Edits of a checkpoint's key other than prefixes and parts: whole names, suffixes, joined pieces."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, reach
from scaffold.inspect.program.name_tests import WEIGHTS, alternatives, from_checkpoint, prefix_of
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import CallRecord, Conditions, Skip, StringEdit
from scaffold.inspect.program.values import (
    Attr,
    Call,
    Carried,
    Choice,
    Const,
    Elem,
    Item,
    Map,
    Obj,
    Op,
    Param,
    Seq,
    Slice,
)
from scaffold.inspect.weight_sources import text_of
from scaffold.source.syntax import around, walk_tree
from scaffold.source.values import Func, Value

Rename = tuple[str, str, Evidence | None]
_PIECES = frozenset(["split", "rsplit", "partition", "rpartition", "findall", "join"])
"""Methods of a string that take it apart, or make it of many."""
CUTS = frozenset(["removeprefix", "removesuffix"])
_MATCHES = frozenset(["match", "fullmatch", "search", "group", "groups", "groupby"])
_LOGS = ("debug", "info", "warning", "error", "exception", "critical", "log", "print")


def is_key(value: Value) -> bool:
    """Whether a value is a checkpoint's key, perhaps with its beginning or parts of it replaced; no piece of one."""
    return any(isinstance(node, Param) and node.root == WEIGHTS for node in _made_from(value))


def _is_piece(value: Value) -> bool:
    return any(isinstance(node, Call) and _cuts(node) and from_checkpoint(node) for node in _made_from(value))


def _cuts(node: Call) -> bool:
    return node.name in _MATCHES or (node.name in _PIECES and isinstance(node.func, Attr))


def _made_from(value: Value) -> Iterator[Value]:
    """Yield a text and the texts that it was made from by edits; a call that takes a text apart is not entered."""

    def inner(node: Value) -> list[Value]:
        if isinstance(node, (Choice, Op, Carried, Seq, Map)):
            return node.parts()
        if isinstance(node, (Item, Attr)):
            return [node.base]
        if isinstance(node, Elem):
            return [node.source]
        if isinstance(node, Call) and not _cuts(node):
            return [*([node.func.base] if isinstance(node.func, Attr) else []), *node.args]
        return []

    return reach([value], inner)


def ending(value: Op, conditions: Conditions) -> tuple[str, str] | None:
    """``name[:-len(old)] + new`` under a test that the name ends with the old text."""
    first, second = value.args
    if not (isinstance(first, Item) and isinstance(first.key, Slice) and first.key.lower is None):
        return None
    cut, target = default_of(first.key.upper) if first.key.upper is not None else None, text_of(second)
    if type(cut) is not int or cut >= 0 or target is None or not is_key(first.base):
        return None
    for cond, truth in conditions:
        if truth and isinstance(cond, Call) and cond.name == "endswith" and cond.args and from_checkpoint(cond.func):
            source = text_of(cond.args[0])
            if source is not None and len(source) == -cut:
                return source, target
    return None


def is_cut_off(value: Value) -> bool:
    """Whether a value is a key whose beginning or end was taken away by name."""
    return isinstance(value, Call) and value.name in CUTS and isinstance(value.func, Attr) and is_key(value.func.base)


def joins_cut_off(value: Op) -> bool:
    """Whether a text is put together with a key that was cut, right here or before."""
    parts = (p for a in value.args for p in ([a, *a.args] if isinstance(a, Op) else [a]))
    return any(is_cut_off(part) for part in parts)


def put_on(value: Op, conditions: Conditions) -> tuple[str, str, str] | None:
    """How, from and to: ``name.removesuffix(old) + new`` and ``new + name.removeprefix(old)`` under a test for it."""
    cut = next((part for part in value.args if is_cut_off(part)), None)
    if not isinstance(cut, Call) or len(value.args) != 2 or not cut.args:
        return None
    first = cut is value.args[0]
    source, target = text_of(cut.args[0]), text_of(value.args[1 if first else 0])
    if not source or target is None or (cut.name == "removesuffix") is not first:
        return None
    test = "endswith" if first else "startswith"
    for cond, truth in conditions:
        if truth and isinstance(cond, Call) and cond.name == test and cond.args and from_checkpoint(cond.func):
            if text_of(cond.args[0]) == source:
                return ("suffix" if first else "prefix"), source, target
    return None


def said(calls: list[CallRecord]) -> set[int]:
    """Return the ids of texts that are logged, or are an error's message."""
    found = set()
    for record in calls:
        if (record.method or "").startswith(_LOGS) or (record.method or "").endswith(("Error", "Exception")):
            found |= {id(a) for a in record.args}
    return found


def cut_of(value: Item) -> int | None:
    """How many leading characters a slice drops."""
    if not isinstance(value.key, Slice):
        return 0
    lower = default_of(value.key.lower) if value.key.lower is not None else 0
    return lower if type(lower) is int and value.key.upper is None else None


def known_prefixes(conditions: Conditions) -> list[str]:
    """The prefixes that the name has here, by the innermost test."""
    for cond, truth in reversed(conditions):
        if isinstance(cond, Op) and cond.op == "not":
            cond, truth = cond.args[0], not truth
        if not truth:
            continue
        found = [t for c in alternatives(cond) if (t := prefix_of(c)) is not None]
        if found:
            return found
    return []


def cut_before(value: Value, conditions: Conditions) -> str:
    """The beginning that was cut off a key before, as a test has it; empty where none was."""
    size = cut_of(value) if isinstance(value, Item) else 0
    if not size:
        return ""
    texts = [prefix for i in range(len(conditions)) for prefix in known_prefixes(conditions[: i + 1])]
    return next((text for text in texts if len(text) == size), "")


def whole_names(program: Program, calls: list[CallRecord]) -> Iterator[Rename]:
    """Renames of whole keys: ``table.get(name, name)``, and ``if name == old: name = new``."""
    functions: dict[int, Func] = {}
    for record in calls:
        if isinstance(record.func, Func):
            functions.setdefault(id(record.func.node), record.func)
        table = record.receiver
        if (
            record.method == "get"
            and isinstance(table, Map)
            and len(record.args) == 2
            and all(map(is_key, record.args))
        ):
            for source, held in table.items.items():
                target = text_of(held)
                if isinstance(source, str) and target is not None:
                    yield source, target, held.at
    for func in functions.values():
        if isinstance(func.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for source, target, line in _written_out(func.node):
                yield source, target, Evidence(func.module.file, line)


def _written_out(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str, int]]:
    given = {a.arg for a in node.args.args}
    loops = [n.target for n in walk_tree(node) if isinstance(n, ast.For) and isinstance(n.target, ast.Tuple)]
    keys = given | {t.elts[0].id for t in loops if t.elts and isinstance(t.elts[0], ast.Name)}
    for test in walk_tree(node):
        if not (isinstance(test, ast.If) and isinstance(test.test, ast.Compare) and len(test.body) == 1):
            continue
        left, other = test.test.left, test.test.comparators[0]
        if not (isinstance(left, ast.Name) and left.id in keys and isinstance(test.test.ops[0], ast.Eq)):
            continue
        done = test.body[0]
        renamed = isinstance(done, ast.Assign) and isinstance(t := done.targets[0], ast.Name) and t.id == left.id
        told = isinstance(done, ast.Return) and left.id in given
        new = done.value if isinstance(done, (ast.Assign, ast.Return)) and (renamed or told) else None
        if isinstance(other, ast.Constant) and isinstance(new, ast.Constant):
            if isinstance(other.value, str) and isinstance(new.value, str) and other.value != new.value:
                yield other.value, new.value, done.lineno


def pieced_together(program: Program, edits: list[StringEdit], calls: list[CallRecord]) -> Evidence | None:
    """Where a name is made of pieces that a key was taken apart into, messages left out."""
    messages = said(calls)
    for edit in edits:
        value = edit.value
        if not (isinstance(value, Op) and value.op in ("+", "format")) or id(value) in messages:
            continue
        texts = [part for part in value.args if isinstance(part, Const)]
        if texts and any(not isinstance(part, Const) and _is_piece(part) for part in value.args):
            return value.at
    return None


# The rules found in a loader that map a checkpoint's keys to parameter names.


@dataclass
class Rules:
    """Rules in the order found, each once, with its place."""

    renames: dict[tuple[str, str], Evidence | None] = field(default_factory=dict)
    stacked: dict[tuple[str, str, str | int], Evidence | None] = field(default_factory=dict)
    ignored: dict[str, Evidence | None] = field(default_factory=dict)
    skipped: dict[tuple[str, str], Evidence | None] = field(default_factory=dict)
    how: dict[tuple[str, str], str] = field(default_factory=dict)
    shards: dict[tuple[str, str], str | int] = field(default_factory=dict)
    loaders: list[Evidence] = field(default_factory=list)
    unread: bool = False
    handed: set[int] = field(default_factory=set)
    """Ids of arguments of calls that are not followed, such as a shard's name passed to a parameter's loader."""
    divided: bool = False
    """Whether one tensor fills several parts of a parameter, by code that no rule describes."""

    @property
    def none(self) -> bool:
        """Whether no rule was found."""
        return not (self.renames or self.stacked or self.ignored)

    def anchor(self, source: str, target: str, place: Evidence | None) -> None:
        """Add the rename of a prefix."""
        self.rename(source, target, place, "prefix")

    def rename(self, source: str, target: str, place: Evidence | None, how: str = "contains") -> None:
        """Add a rename; ``how`` says where in a key the text is looked for."""
        if source != target:
            self.renames.setdefault((source, target), place)
            self.how.setdefault((source, target), how)

    def settle(self) -> None:
        """Move what several texts are replaced by to the packed parameters, where the parts are known."""
        parts: dict[str, list[str]] = {}
        places: dict[str, set[str]] = {}
        for (source, target), how in self.how.items():
            places.setdefault(source, set()).add(target)
            if how == "contains" and target:
                parts.setdefault(target, []).append(source)
        for target, sources in parts.items():
            if len(sources) < 2:
                continue
            shards = [self.shards.get((source, target)) for source in sources]
            if None in shards or len(set(shards)) < len(shards):
                self.unread = True
                continue
            for source, shard in zip(sources, shards, strict=True):
                if shard is not None:
                    self.stacked.setdefault((target, source, shard), self.renames.pop((source, target)))
        # A name that becomes several is split by code that no rule describes.
        self.unread = self.unread or any(len(targets) > 1 for targets in places.values())


# Whether a branch of a loader leaves a weight out for good: not a row of a table, and nothing that is raised later.

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def leaves_out(program: Program, skip: Skip) -> bool:
    """Return whether a ``continue`` or ``return`` skips a weight for good."""
    around_it = list(around(program.source.tree(skip.at.file), skip.at.line))
    loops = [n for n in around_it if isinstance(n, _LOOPS)]
    goes_on = any(isinstance(n, ast.Continue) and n.lineno == skip.at.line for n in around_it)
    if goes_on and loops:
        # A loop whose turns are all known is one over a table's rows; the weights are not.
        unknown = {(record.at.file, record.at.line) for record in program.trace.loops.values()}
        if (skip.at.file, loops[-1].lineno) not in unknown:
            return False
    branches = [n for n in around_it if isinstance(n, ast.If) and n.body[-1].lineno == skip.at.line]
    return not (branches and raises_for(branches[0].body, around_it))


def raises_for(body: list[ast.stmt], around_it: list[ast.AST]) -> bool:
    """Tell whether a branch notes down names, in a loop behind which the function may raise."""
    notes = any(
        isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and getattr(s.value.func, "attr", "") == "append"
        for s in body
    )
    functions = [n for n in around_it if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    loops = [n for n in around_it if isinstance(n, _LOOPS)]
    if not (notes and functions and loops):
        return False
    end = max(loop.end_lineno or 0 for loop in loops)
    return any(isinstance(n, ast.Raise) and n.lineno > end for n in walk_tree(functions[-1]))


def handed_on(program: Program, skip: Skip, loader: str) -> bool:
    """Tell whether a skip stands in the loader of a module that the pipeline hands weights to."""
    found = program.pipeline.cls.find_method(loader)
    own = (found[0].module.file, found[1].lineno) if found is not None else None
    around_it = around(program.source.tree(skip.at.file), skip.at.line)
    loaders = [n.lineno for n in around_it if isinstance(n, ast.FunctionDef) and n.name == loader]
    return any((skip.at.file, line) != own for line in loaders)


def held_names(program: Program) -> set[str]:
    """Return attribute names of the pipeline and its modules: keys with such a prefix belong to them."""
    modules = [program.pipeline]
    for value in program.pipeline.attrs.values():
        modules += [o for o in options(value) if isinstance(o, Obj) and o.root is None and o.cls.is_module]
    return {name for module in modules for name in module.attrs}
