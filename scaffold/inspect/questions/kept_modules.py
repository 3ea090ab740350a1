"""Modules that a pipeline keeps in a dictionary and calls in its loop: what takes sample and time, what predicts."""

from __future__ import annotations

from dataclasses import dataclass

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.turns import is_sample, is_turn, without_reshaping
from scaffold.inspect.program.updates import through_model
from scaffold.inspect.program.values import Call, Const, Item, Map, Obj
from scaffold.source.values import Value

ORDER = 12
KEYS = ("detail.modules.input", "detail.modules.time", "detail.modules.output")


@dataclass(frozen=True)
class KeptCall:
    """A call of ``self.<attribute>["<key>"]`` in the denoising loop; ``module`` where its class is of the source."""

    path: str
    record: CallRecord
    module: Obj | None

    @property
    def arguments(self) -> list[Value]:
        """Its arguments."""
        return [*self.record.args, *self.record.kwargs.values()]


def answers(program: Program) -> dict[str, Fact]:
    """Dotted paths of the modules below the pipeline."""
    loop = program.denoising
    if loop is None or loop.sample is None:
        return {}
    facts: dict[str, Fact] = {}
    last: dict[str, KeptCall] = {}
    for call in kept_calls(program):
        given = [without_reshaping(value) for value in call.arguments]
        if any(is_sample(value, loop.sample) for value in given):
            facts.setdefault("detail.modules.input", fact(call.path, [call.record.at]))
        elif any(is_turn(value, loop.number) for value in given):
            facts.setdefault("detail.modules.time", fact(call.path, [call.record.at]))
        elif any(through_model(value, loop.sample) for value in call.arguments):
            last[call.path] = call
    if len(last) == 1:
        ((path, call),) = last.items()
        facts["detail.modules.output"] = fact(path, [call.record.at])
    return facts


def kept_calls(program: Program) -> list[KeptCall]:
    """Calls of the loop whose function is an entry of a module dictionary of the pipeline."""
    loop = program.denoising
    attributes = {id(o): name for name, value in program.pipeline.attrs.items() for o in options(value)}
    found = []
    for record in program.trace.calls if loop is not None else []:
        func = record.func
        if loop is None or loop.number not in record.loops or not isinstance(func, Item):
            continue
        names = {attributes[id(o)] for o in options(func.base) if id(o) in attributes}
        if len(names) != 1 or not isinstance(func.key, Const) or not isinstance(func.key.value, str):
            continue
        name = names.pop()
        found.append(KeptCall(f"{name}.{func.key.value}", record, _held(program, name, func.key.value)))
    return found


def _held(program: Program, name: str, key: str) -> Obj | None:
    """The object under a key of the dictionary, where its construction is followed."""
    for held in options(program.pipeline.attrs[name]):
        for part in held.parts() if isinstance(held, Call) else [held]:
            entry = part.items.get(key) if isinstance(part, Map) else None
            found = [o for o in options(entry) if isinstance(o, Obj)] if entry is not None else []
            if len(found) == 1:
                return found[0]
    return None
