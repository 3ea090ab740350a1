"""What a turn does with predictions that the rollout carries as a constant, or refuses: said before anything runs.

Only the statements of the loop itself are read; what stands in functions that it calls, the rollout says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.updates import STEP_METHOD, through_model
from scaffold.inspect.program.values import Obj
from scaffold.inspect.report import TURN
from scaffold.source.values import Func

ORDER = 60
KEYS = (TURN,)

_KEPT = "{} keeps predictions of turns before: where it takes part it is carried as a constant, and its gradient ends"
_SKIPPED = (
    "the denoiser is called in some turns alone: the rollout refuses a turn that steps with what one before predicted;"
    " switch off what skips calls"
)
_DECIDES = "a decision by numbers of a prediction: the rollout refuses it where it is taken; decide with tensors"
_READS = "{}() reads numbers of a prediction: the rollout refuses it where it runs; compute with tensors"

_METHODS = frozenset(("item", "tolist", "numpy"))
_BUILTINS = frozenset(("float", "int", "bool"))
# What tells no numbers of a tensor, or that they are finite alone.
_HARMLESS = frozenset(
    ("shape", "dtype", "device", "ndim", "size", "dim", "numel", "isnan", "isinf", "isfinite", "len", "isinstance")
)


def answers(program: Program) -> dict[str, Fact]:
    """Sentences, each with its place; no fact where a turn keeps and reads nothing."""
    loop = program.denoising
    if loop is None or loop.sample is None:
        return {}
    turn = _Turn(loop, _calls(program, loop))
    found = sorted(set(turn.notes()))
    places = [Evidence(loop.loop.at.file, line) for line, _ in found]
    said = [f"{place.file}:{place.line}: {text}" for place, (_, text) in zip(places, found, strict=True)]
    return {TURN: fact(said, places, "likely")} if said else {}


def _calls(program: Program, loop: Denoising) -> set[int]:
    """Lines of the loop's file at which a call returns what the model makes of the sample."""
    updates = {id(update) for update, _ in loop.ways} | {id(loop.step), id(loop.inline)}
    assert loop.sample is not None
    ends = {id(carried) for carried in loop.loop.carried.values()}
    return {
        record.at.line
        for record in program.trace.calls
        if record.at is not None
        and record.at.file == loop.loop.at.file
        and loop.number in record.loops
        and record.method != STEP_METHOD
        and (isinstance(record.func, Func) or any(isinstance(o, Obj) for o in options(record.receiver)))
        and through_model(record.result, loop.sample)
        and not any(id(node) in updates for node in walk(record.result, stop=ends))
    }


class _Turn:
    """The statements of a turn, and which names hold what is made of predictions."""

    def __init__(self, loop: Denoising, lines: set[int]) -> None:
        assert loop.sample is not None
        node = loop.loop.node
        self.body, self.lines = node.body, lines
        self.turns = set(_names(node.target)) if isinstance(node, ast.For | ast.AsyncFor) else set()
        # What has a value before the first turn may be read in a turn that gives it none.
        self.begun = {name for name, carried in loop.loop.carried.items() if carried.init is not None}
        self.made: set[str] = set()
        before = -1
        while len(self.made) != before:
            before = len(self.made)
            for target, value in _assigned(self.body):
                if self.is_made(value):
                    self.made |= set(_names(target)) - {loop.sample.name}

    def is_made(self, node: ast.AST) -> bool:
        """Whether an expression tells numbers of a prediction."""
        if isinstance(node, ast.Attribute) and node.attr in _HARMLESS:
            return False
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _HARMLESS or name == STEP_METHOD:
                return False
            if node.lineno in self.lines:
                return True
        if isinstance(node, ast.Name):
            return node.id in self.made
        if isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return False
        return any(self.is_made(child) for child in ast.iter_child_nodes(node))

    def notes(self) -> Iterator[tuple[int, str]]:
        """Lines and sentences."""
        calls = [way for way in _ways(self.body) if self._calls_in(way[-1])]
        tests = [[test for test in way[:-1] if isinstance(test, ast.If)] for way in calls]
        if tests and all(any(self._skips(test) for test in way) for way in tests):
            yield next(test.lineno for test in tests[0] if self._skips(test)), _SKIPPED
        else:
            kept = dict(reversed(list(self._kept(self.body, set()))))
            yield from ((line, _KEPT.format(name)) for name, line in kept.items())
        for node in (node for statement in self.body for node in ast.walk(statement)):
            if isinstance(node, ast.If | ast.While | ast.IfExp) and self.is_made(node.test):
                yield node.test.lineno, _DECIDES
            if isinstance(node, ast.Call):
                if (
                    isinstance(node.func, ast.Attribute)
                    and node.func.attr in _METHODS
                    and self.is_made(node.func.value)
                ):
                    yield node.lineno, _READS.format(node.func.attr)
                if isinstance(node.func, ast.Name) and node.func.id in _BUILTINS and any(map(self.is_made, node.args)):
                    yield node.lineno, _READS.format(node.func.id)

    def _calls_in(self, node: ast.AST) -> bool:
        return any(isinstance(inner, ast.Call) and inner.lineno in self.lines for inner in ast.walk(node))

    def _skips(self, test: ast.If) -> bool:
        """Whether a turn may go the way without a call, by its number or by what turns before left."""
        both = all(any(self._calls_in(s) for s in way) for way in (test.body, test.orelse))
        return not both and any(name in self.turns | self.made for name in _names(test.test))

    def _kept(self, statements: Sequence[ast.stmt], assigned: set[str]) -> Iterator[tuple[str, int]]:
        """Names that a turn reads and has not given a value; those that it has are added to ``assigned``."""
        for statement in statements:
            if isinstance(statement, ast.If):
                yield from self._read(statement.test, assigned)
                ways = [set(assigned), set(assigned)]
                yield from self._kept(statement.body, ways[0])
                yield from self._kept(statement.orelse, ways[1])
                assigned |= ways[0] & ways[1]
            elif isinstance(statement, ast.With | ast.AsyncWith):
                yield from self._kept(statement.body, assigned)
            elif isinstance(statement, ast.For | ast.AsyncFor | ast.While | ast.Try):
                yield from self._kept(statement.body, set(assigned))
            else:
                yield from self._read(statement, assigned)
                for target, _ in _assigned([statement]):
                    assigned |= set(_names(target)) if isinstance(target, ast.Name | ast.Tuple) else set()

    def _read(self, node: ast.AST, assigned: set[str]) -> Iterator[tuple[str, int]]:
        held = (self.made & self.begun) - assigned
        if isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in held:
            yield node.target.id, node.lineno
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in held:
            yield node.id, node.lineno
        for child in ast.iter_child_nodes(node):
            yield from self._read(child, assigned)


def _ways(statements: Sequence[ast.stmt], above: tuple[ast.stmt, ...] = ()) -> Iterator[tuple[ast.stmt, ...]]:
    """Each statement that holds no others, behind those that hold it."""
    for statement in statements:
        inner = [s for name in ("body", "orelse") for s in getattr(statement, name, ())]
        yield from _ways(inner, (*above, statement)) if inner else iter([(*above, statement)])


def _assigned(statements: Sequence[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AugAssign | ast.NamedExpr | ast.AnnAssign) and node.value is not None:
            yield node.target, node.value


def _names(node: ast.AST) -> list[str]:
    """Names in an expression; of a target those that it writes to."""
    return [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
