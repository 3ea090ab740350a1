"""The scheduler object of a loop's step: its class, its construction, and the arguments of its schedule."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scaffold.inspect.known_schedulers import KnownScheduler, find
from scaffold.inspect.program.algebra import asks_for_none, is_none, options
from scaffold.inspect.program.by_default import by_default, taken_by_default
from scaffold.inspect.program.calls import REGISTERS
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.program import Program, once
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Attr, Call, Obj, Op, Param, Slot
from scaffold.source.classes import ClassInfo
from scaffold.source.syntax import walk_tree
from scaffold.source.values import External, Value

LOADERS = ("from_pretrained", "from_config")


@dataclass(eq=False)
class HeldScheduler:
    """One scheduler.

    Attributes:
        made: the values that it may be: one construction, or one from a file and one without.
        receiver: what the step is called on.
        path: dotted path of the class.
        cls: the class, where it is one of the source.
        known: what is known of it, where it, or the base that makes its schedule and its steps, is diffusers'.
        asked: the call of ``set_timesteps`` on the default path.
        alone: whether no other path asks for something else.
        above: the class of diffusers to which a class of the source hands the levels that it makes, and whose steps it
            takes.
    """

    made: list[Value]
    receiver: Value
    path: str
    cls: ClassInfo | None
    known: KnownScheduler | None
    asked: CallRecord | None
    alone: bool = True
    above: KnownScheduler | None = None


@once
def held_scheduler(program: Program) -> HeldScheduler | None:
    """Return the scheduler of the denoising loop, found once; None where it is not known which object it is."""
    loop = program.denoising
    if loop is None or loop.step is None:
        return None
    receiver = loop.step.receiver
    if receiver is None:
        return None
    made = [v for o in _held(program, receiver) for v in _constructions(program, o) if not is_none(v)]
    paths = {path for v in made if (path := _path(v)) is not None}
    if not made or len(paths) != 1 or any(_path(v) is None for v in made):
        return None
    path = paths.pop()
    cls = made[0].cls if isinstance(made[0], Obj) else None
    known = find(path) if cls is None else _known_base(cls)
    calls = _calls(program, receiver)
    alone = len({_asks(r) for r in calls}) <= 1
    above = _handed_to(cls) if cls is not None and known is None else None
    return HeldScheduler(made, receiver, path, cls, known, _asked(program, calls), alone, above)


def _held(program: Program, receiver: Value) -> list[Value]:
    """What the receiver may be."""
    return [o for o in taken_by_default(program.whole(receiver)) if not isinstance(o, Slot)] or options(receiver)


def _constructions(program: Program, held: Value) -> list[Value]:
    """What an attribute stands for that was left symbolic: a registered module."""
    if not isinstance(held, Attr) or not isinstance(held.base, Obj):
        return [] if isinstance(held, Slot) else [held]
    for record in program.trace.calls:
        if record.method == REGISTERS and record.receiver is held.base and held.name in record.kwargs:
            return options(record.kwargs[held.name])
    return [held]


@contextmanager
def apart(program: Program) -> Iterator[None]:
    """Execute something apart from the main run, restoring the trace afterwards."""
    trace = program.trace
    lists: tuple[list[Any], ...] = (trace.calls, trace.tests, trace.edits, trace.skips)
    sizes, loops = [len(entries) for entries in lists], set(trace.loops)
    try:
        yield
    finally:
        for entries, size in zip(lists, sizes, strict=True):
            del entries[size:]
        for number in set(trace.loops) - loops:
            del trace.loops[number]


def _path(value: Value) -> str | None:
    if isinstance(value, Obj):
        return f"{value.cls.module.name}.{value.cls.name}"
    if isinstance(value, Call):
        func = value.func
        if isinstance(func, Attr) and func.name in LOADERS:
            func = func.base
        if isinstance(func, External):
            package, _, last = func.path.rpartition(".")
            path = package if last in LOADERS else func.path
            return path if path.rpartition(".")[2][:1].isupper() else None
    return None


def _known_base(cls: ClassInfo) -> KnownScheduler | None:
    """The class of diffusers that makes schedule and steps of one derived from it."""
    own = {name for c in cls.mro for name in c.methods}
    if own & {"__init__", "set_timesteps", "step", "time_shift"}:
        return None
    found = [known for c in cls.mro for base in c.external_bases if (known := find(base)) is not None]
    return found[0] if len(found) == 1 else None


def _handed_to(cls: ClassInfo) -> KnownScheduler | None:
    """The class of diffusers whose ``set_timesteps`` is what a class's own one ends with, given the levels."""
    own = [name for c in cls.mro for name in c.methods]
    if {"step", "time_shift"} & set(own) or own.count("set_timesteps") != 1:
        return None
    found = [known for c in cls.mro for base in c.external_bases if (known := find(base)) is not None]
    method = cls.find_method("set_timesteps")
    if len(found) != 1 or method is None:
        return None
    *before, last = method[1].body
    handed = last.value if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else None
    if handed is None or ast.unparse(handed.func) != "super().set_timesteps":
        return None
    inside = [s for s in before if not isinstance(s, (ast.FunctionDef, ast.ClassDef))]
    if any(isinstance(node, ast.Return) for statement in inside for node in walk_tree(statement)):
        return None
    return found[0] if any(keyword.arg == "sigmas" for keyword in handed.keywords) else None


def _calls(program: Program, receiver: Value) -> list[CallRecord]:
    """The calls of ``set_timesteps`` on the object that nothing known speaks against."""
    asked = {id(o) for o in options(receiver)}
    found = [r for r in program.trace.calls if r.method == "set_timesteps"]
    found = [r for r in found if any(id(o) in asked for o in options(r.held_by))]
    return [r for r in found if _default_path(program, r, ())]


def _asked(program: Program, calls: list[CallRecord]) -> CallRecord | None:
    """The call that is made before the loop; where nothing decides between two calls, they must ask the same."""
    loop = program.denoising
    assert loop is not None
    calls = [r for r in calls if _default_path(program, r, loop.loop.conditions)]
    return calls[-1] if calls and len({_asks(r) for r in calls}) == 1 else None


def _asks(record: CallRecord) -> tuple[object, ...]:
    """What a call gives, as far as two calls are compared: the names, and plain values."""
    given = {str(place): value for place, value in enumerate(record.args)} | record.kwargs
    return tuple(
        (name, "" if (known := default_of(value)) is MISSING else repr(known))
        for name, value in sorted(given.items())
        if name != "device"
    )


def _default_path(program: Program, record: CallRecord, loop: tuple[tuple[Value, bool], ...]) -> bool:
    """Whether nothing that is known speaks against the call, and it stands on the loop's side of each condition.

    What every request must fulfil, for else it is refused, speaks against no call.
    """
    sides = {id(cond): truth for cond, truth in loop}
    for cond, truth in record.conditions:
        if sides.get(id(cond), truth) is not truth:
            return False
        if id(cond) in program.execution.imposed:
            continue
        known = default_of(cond)
        if known is MISSING:
            known = _never_none(cond)
        if known is MISSING and (decided := by_default(cond)) is not None:
            known = decided
        if known is not MISSING and bool(known) is not truth:
            return False
    return True


def _never_none(cond: Value) -> object:
    """Truth of a comparison with None of what has a default that is a call's result or a sum."""
    if asks_for_none(cond):
        asked = cond.args[0]
        if isinstance(asked, Param) and isinstance(asked.default, (Call, Op)):
            return cond.op == "isnot"
    return MISSING
