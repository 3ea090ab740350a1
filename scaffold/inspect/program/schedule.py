"""Schedules as numbers: how many turns a loop takes, and what its entries are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from scaffold.inspect.program.algebra import asks_for_none, options, walk
from scaffold.inspect.program.numeric import MISSING, default_of, number
from scaffold.inspect.program.trace import Trace
from scaffold.inspect.program.values import Attr, Call, Choice, Conf, Const, Elem, Index, Item, Op, Param, Seq, Slice
from scaffold.source.values import Evidence, External, Value

STEPS_KEY = "num_inference_steps"
REQUEST_ROOTS = frozenset(("sampling_params", "extra_args", "request", "prompt"))
_WRAPPERS = frozenset(("enumerate", "zip", "tqdm", "reversed", "list", "tensor", "as_tensor", "from_numpy", "array"))
_KEEPING = frozenset(("flip", "sort", "unsqueeze", "squeeze", "flatten", "view", "astype", "copy", "round"))
"""Methods whose result has as many entries."""
SCHEDULE_ATTRIBUTES = ("timesteps", "sigmas")
SHIFT_PROBES = (0.5, 0.1, 0.3, 0.6, 0.8)


def is_asked_for(value: Value) -> bool:
    """Whether a value is the number of steps that a request asks for, and no setting of the same name."""
    return isinstance(value, Param) and value.key.rpartition(".")[2] == STEPS_KEY and value.root in REQUEST_ROOTS


@dataclass
class Linear:
    """``factor``·n + ``offset`` for n = num_inference_steps, with the places that say so.

    ``sure`` is False where another count is possible that no request asks for, as that of a list in a file.
    """

    factor: int
    offset: int
    places: tuple[Evidence | None, ...] = ()
    sure: bool = True

    @property
    def text(self) -> str:
        """What it is with a factor of 1: ``n``, ``n-1``."""
        return "n" if self.offset == 0 else f"n{self.offset:+d}"

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        return Linear(
            self.factor + sign * other.factor,
            self.offset + sign * other.offset,
            (*self.places, *other.places),
            self.sure and other.sure,
        )

    def shifted(self, by: int, at: Evidence | None) -> Linear:
        return replace(self, offset=self.offset + by, places=(at, *self.places))

    def seen_at(self, at: Evidence | None) -> Linear:
        return self.shifted(0, at)


class Counter:
    """Counts entries of schedules symbolically."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._counted: dict[tuple[str, int], Linear | None] = {}

    def _once(
        self, kind: str, count: Callable[[Value, int], Linear | None], value: Value | None, depth: int
    ) -> Linear | None:
        """Count a value once for each question that is asked; what leads back to itself has no count."""
        if value is None or depth > 24:
            return None
        if depth == 0:
            self._counted = {}
        key = kind, id(value)
        if key not in self._counted:
            self._counted[key] = None
            self._counted[key] = count(value, depth)
        return self._counted[key]

    def scalar(self, value: Value | None, depth: int = 0) -> Linear | None:
        """A whole number as a function of the number of steps asked for."""
        return self._once("scalar", self._scalar, value, depth)

    def _scalar(self, value: Value, depth: int) -> Linear | None:
        if isinstance(value, Const):
            return Linear(0, value.value, (value.at,)) if type(value.value) is int else None
        if isinstance(value, Param):
            if is_asked_for(value):
                return Linear(1, 0, (value.at,))
            known = default_of(value)
            return Linear(0, known, (value.at,)) if type(known) is int else None
        if isinstance(value, Op) and value.op in ("+", "-") and len(value.args) == 2:
            left, right = (self.scalar(a, depth + 1) for a in value.args)
            if left is None or right is None:
                return None
            total = left.plus(right, 1 if value.op == "+" else -1)
            return total.seen_at(value.at)
        if isinstance(value, Op) and value.op == "or":
            # What stands behind a number of steps is taken where none is asked for.
            asked = self.scalar(value.args[0], depth + 1)
            return asked if asked is not None and asked.factor else None
        if isinstance(value, Choice):
            return self._agreed(value, depth, self.scalar)
        if isinstance(value, Call) and value.name == "len" and value.args:
            return self.length(value.args[0], depth + 1)
        if isinstance(value, Item) and isinstance(value.base, Attr) and value.base.name == "shape":
            return self.length(value.base.base, depth + 1)
        if isinstance(value, Call) and value.name in ("size", "numel") and isinstance(value.func, Attr):
            return self.length(value.func.base, depth + 1)
        if isinstance(value, Call) and value.name in ("max", "min") and len(value.args) == 2:
            known_args = [self.scalar(a, depth + 1) for a in value.args]
            return next((k for k in known_args if k is not None and k.factor), None)
        return None

    def _agreed(self, value: Choice, depth: int, count: object) -> Linear | None:
        assert callable(count)
        if value.cond is not None and len(value.options) == 2:
            truth = default_of(value.cond)
            if truth is not MISSING:
                chosen: Linear | None = count(value.options[0] if truth else value.options[1], depth + 1)
                if chosen is not None:
                    return chosen
        # Where a request asks for no number, a file's may be taken.
        counted = [o for o in options(value) if not (_asks_for_none(value) and isinstance(o, Conf))]
        found = [count(o, depth + 1) for o in counted]
        known = [f for f in found if f is not None]
        if _asks_for_none(value) and len(known) == len(found):
            known = [f for f in known if f.factor] or known
        if known and all((k.factor, k.offset) == (known[0].factor, known[0].offset) for k in known):
            first: Linear = known[0]
            others = [o for o, f in zip(counted, found, strict=True) if f is None]
            return first if all(self._set_by_request(o, first, depth) for o in others) else replace(first, sure=False)
        return None

    def _set_by_request(self, value: Value, count: Linear, depth: int) -> bool:
        """Whether only a request can make a schedule of other length out of a value."""
        while isinstance(value, (Item, Attr, Elem)):
            value = value.source if isinstance(value, Elem) else value.base
        if isinstance(value, Param) and value.root in REQUEST_ROOTS:
            if value.default is None:
                return True
            value = value.default
        if isinstance(value, Const):
            return value.value is None
        own = self.length(value, depth + 1)
        return own is not None and (own.factor, own.offset) == (count.factor, count.offset)

    def length(self, value: Value | None, depth: int = 0) -> Linear | None:
        """The number of entries of a vector."""
        return self._once("length", self._length, value, depth)

    def _length(self, value: Value, depth: int) -> Linear | None:
        if isinstance(value, Seq):
            return Linear(0, len(value.items), (value.at,)) if value.exact else None
        if isinstance(value, Op):
            lengths = [n for a in value.args if (n := self.length(a, depth + 1)) is not None]
            return lengths[0] if lengths else None
        if isinstance(value, Choice):
            return self._agreed(value, depth, self.length)
        if isinstance(value, Param) and value.root in REQUEST_ROOTS:
            # A list given by a request does not depend on the number of steps.
            return self.length(value.default, depth + 1)
        if isinstance(value, Item):
            return self._sliced(value, depth)
        if isinstance(value, Call):
            return self._call_length(value, depth)
        if isinstance(value, Attr) and value.name in SCHEDULE_ATTRIBUTES:
            return self._scheduler_length(value, depth)
        return None

    def _sliced(self, value: Item, depth: int) -> Linear | None:
        if not isinstance(value.key, Slice) or value.key.step is not None:
            return None
        whole = self.length(value.base, depth + 1)
        if whole is None:
            return None
        for bound, lower in ((value.key.lower, True), (value.key.upper, False)):
            if bound is None:
                continue
            at = default_of(bound) if isinstance(bound, (Const, Op)) else MISSING
            if type(at) is int and ((lower and at >= 0) or (not lower and at < 0)):
                whole = whole.shifted(-at if lower else at, value.at)
            elif not lower and (count := self.scalar(bound, depth + 1)) is not None:
                whole = count.seen_at(value.at)
            else:
                return None
        return whole

    def _call_length(self, value: Call, depth: int) -> Linear | None:
        name = value.name
        if name in _WRAPPERS and value.args:
            return self.length(value.args[0], depth + 1)
        if name == "linspace":
            count = self.scalar(value.argument(2, "steps", "num"), depth + 1)
            return count.seen_at(value.at) if count else None
        if name == "range":
            ends = [self.scalar(a, depth + 1) for a in value.args]
            if len(ends) == 1:
                return ends[0]
            if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
                return ends[1].plus(ends[0], -1)
            return None
        if name == "arange" and len(value.args) == 1:
            return self.scalar(value.args[0], depth + 1)
        if name in JOINING and value.args:
            parts = value.args[0].items if isinstance(value.args[0], Seq) else value.args
            lengths = [self.length(p, depth + 1) or _one(p) for p in parts]
            if lengths and all(n is not None for n in lengths):
                total = Linear(0, 0, (value.at,))
                for n in lengths:
                    assert n is not None
                    total = total.plus(n)
                return total
            return None
        if name in ("new_zeros", "zeros", "ones") and value.args:
            return self.scalar(value.args[0], depth + 1)
        if isinstance(value.func, Attr) and name in _KEEPING:
            return self.length(value.func.base, depth + 1)
        if name == "where" and len(value.args) == 3:
            return next((n for a in value.args if (n := self.length(a, depth + 1)) is not None), None)
        for argument in value.args[:1]:
            # An elementwise function keeps the length.
            if name in ("sqrt", "exp", "log", "sin", "cos", "flip", "sigmoid", "clamp", "pow"):
                return self.length(argument, depth + 1)
        return None

    def _scheduler_length(self, value: Attr, depth: int) -> Linear | None:
        """A scheduler's own schedule, as long as ``set_timesteps`` was asked to make it."""
        found: Linear | None = None
        for record in reversed(self._trace.calls):
            if record.method != "set_timesteps" or not isinstance(record.result, Call):
                continue
            if found is not None and record.receiver is not value.base:
                continue
            asked = record.args[0] if record.args else record.kwargs.get(STEPS_KEY)
            given = [asked, record.kwargs.get("num_steps")]
            lists = [record.kwargs.get("sigmas"), record.kwargs.get("timesteps")]
            # A list may be the schedule that an earlier call made: it is only followed where nothing else counts.
            count = next((c for g in given if (c := self.scalar(g, depth + 1)) is not None), None)
            count = count or next((c for g in lists if (c := self.length(g, depth + 1)) is not None), None)
            if found is None:
                found = count.shifted(int(value.name == "sigmas"), record.at) if count is not None else None
            elif count is not None:
                found = replace(found, sure=found.sure and count.sure)
        return found


JOINING = ("cat", "concat", "concatenate", "append")


def _asks_for_none(value: Choice) -> bool:
    """Whether the condition only asks whether one of the options is given at all."""
    cond = value.cond
    return asks_for_none(cond) and any(o is cond.args[0] for o in value.options)


def _one(value: Value) -> Linear | None:
    """A vector with one entry, as in ``cat([sigmas, zeros(1)])``."""
    if isinstance(value, Call) and value.name in ("zeros", "ones", "tensor", "new_zeros", "zeros_like"):
        return Linear(0, 1, (value.at,))
    return None


def turn_count(counter: Counter, source: Value | None) -> Linear | None:
    """The number of turns of a loop over ``source``."""
    if isinstance(source, Call) and source.name in ("enumerate", "zip", "tqdm", "reversed") and source.args:
        counts = [turn_count(counter, a) for a in source.args]
        return next((c for c in counts if c is not None), None)
    if isinstance(source, Const):
        return None
    return counter.length(source)


def base_grid(value: Value) -> Call | None:
    """The evenly spaced grid that a schedule is made from."""
    return next((node for node in walk(value) if is_grid(node)), None)


def is_grid(node: Value) -> TypeGuard[Call]:
    """Whether a value is an evenly spaced grid."""
    return isinstance(node, Call) and node.name == "linspace" and isinstance(node.func, External)


def vector_of(value: Value) -> Value:
    """The whole schedule behind a turn's entry."""
    node = value
    for _ in range(12):
        if isinstance(node, Elem):
            node = node.source
        elif isinstance(node, Item) and not isinstance(node.key, Slice):
            if any(isinstance(n, Index) for n in walk(node.key)):
                return node.base
            node = node.base
        elif isinstance(node, Call) and node.name in _WRAPPERS and node.args:
            node = node.args[0]
        elif isinstance(node, Seq) and node.items:
            node = node.items[0]
        else:
            break
    return node


def solved_shift(levels: Sequence[float | None]) -> float | None:
    """Solve levels s·t/(1+(s-1)·t) at t of ``SHIFT_PROBES`` for s; None where they have another form."""
    half, *others = levels
    if half is None or not 0 < half < 1:
        return None
    shift = half / (1 - half)
    for t, level in zip(SHIFT_PROBES[1:], others, strict=True):
        if level is None or abs(level - shift * t / (1 + (shift - 1) * t)) > 1e-9:
            return None
    return shift


def entry(value: Value, grid: Call, position: float) -> float | None:
    """The schedule's entry where the grid's is ``position``."""
    return number(value, {id(grid): position})
