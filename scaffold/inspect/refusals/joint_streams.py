"""Joint streams: one turn steps two samples, such as video and audio, each on a schedule of its own."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import depends, options, same, walk
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.updates import STEP_METHOD, through_model
from scaffold.inspect.program.values import NONE, Attr, Carried, Obj, Seq
from scaffold.inspect.refusals.refusal import Refusal
from scaffold.source.values import Func, Value

ORDER = 30


def refusal(program: Program) -> Refusal | None:
    """More than one sample is updated in a turn from one forward of the model."""
    loop = program.denoising
    if loop is None:
        return None
    names = _streams(program, loop) or _stepped_apart(program, loop)
    if len(names) < 2:
        return None
    reason = (
        f"joint streams: one turn steps {' and '.join(names)} from one prediction, each by a scheduler or a schedule "
        "of its own, and the log-prob that is rendered is that of one sample"
    )
    return Refusal(reason, [*names.values(), loop.loop.at], on_this_path_only=True)


def _streams(program: Program, loop: Denoising) -> dict[str, Evidence | None]:
    """The variables that are samples of one prediction, with the place of their update."""
    found: dict[str, Evidence | None] = {}
    if loop.step is not None and loop.sample is None:
        # step((prediction, prediction), time, (sample, sample))
        tuples = [a for a in [*loop.step.args, *loop.step.kwargs.values()] if _pair(a)]
        if len(tuples) > 1:
            return {_name(i, n): loop.step.at for n, i in enumerate(_pair(tuples[-1]))}
    samples = [s.sample for s in loop.streams if s.sample is not None]
    # What no model is given is no sample: a sum of predictions that a turn keeps for later ones, say.
    given = _given_to_models(program, loop, samples)
    for stream in loop.streams:
        if given and stream.sample not in given:
            continue
        others = [o for s in loop.streams if s is not stream for _, o in s.ways]
        # Where a turn has several ways, the place is one at which the streams part.
        own = [update for update, output in stream.ways if not any(same(output, o) for o in others)]
        update = next(iter(own), stream.step or stream.inline)
        if stream.sample is None or update is None:
            continue
        # Streams that one model denoises together: each is predicted from the other, too.
        if any(o is stream.sample or through_model(update, o) for o in samples):
            found.setdefault(stream.sample.name, update.at)
    outputs = [[o for _, o in s.ways] for s in loop.streams if s.ways]
    if len(found) > 1 and all(_are_same(o, outputs[0]) for o in outputs):
        return {}
    return found


def _given_to_models(program: Program, loop: Denoising, samples: list[Carried]) -> list[Carried]:
    """Those of the samples that a module other than the pipeline is called with in a turn."""
    found = []
    for record in program.trace.calls:
        bound = record.func.bound if isinstance(record.func, Func) else record.held_by
        held = [o for o in options(bound) if isinstance(o, Obj) and o.cls.is_module and o is not program.pipeline]
        if loop.number in record.loops and held:
            # What another sample becomes at the end of a turn is none of the call's.
            found += [
                node
                for value in (*record.args, *record.kwargs.values())
                for node in walk(value, stop=set(map(id, samples)))
            ]
    return [sample for sample in samples if any(node is sample for node in found)]


def _stepped_apart(program: Program, loop: Denoising) -> dict[str, Evidence | None]:
    """Samples that are kept in attributes, each stepped by a scheduler in the same turn."""
    found: list[CallRecord] = []
    for record in program.trace.calls if loop.sample is None and loop.step is not None else ():
        if record.method != STEP_METHOD or record.loops[-1:] != (loop.number,) or _sample(record) is None:
            continue
        if all(_is_beside(record, other) for other in found):
            found.append(record)
    return {_name(_sample(r) or NONE, number): r.at for number, r in enumerate(found)} if len(found) > 1 else {}


def _sample(record: CallRecord) -> Value | None:
    """What a scheduler's step is given to change."""
    return record.kwargs.get("sample") or (record.args[2] if len(record.args) > 2 else None)


def _is_beside(one: CallRecord, other: CallRecord) -> bool:
    """Whether two steps are of different samples, none made from the other, and one turn makes both."""
    sides = {id(cond): truth for cond, truth in other.conditions}
    samples = [_sample(r) or NONE for r in (one, other)]
    return (
        all(sides.get(id(cond), truth) is truth for cond, truth in one.conditions)
        and not any(same(a, b) for a in options(samples[0]) for b in options(samples[1]))
        and not depends(samples[0], other.result)
        and not depends(samples[1], one.result)
    )


def _are_same(one: list[Value], other: list[Value]) -> bool:
    """Whether two samples are stepped by the same predictions, way by way."""
    return all(any(same(x, y) for y in b) for a, b in ((one, other), (other, one)) for x in a)


def _pair(argument: Value) -> list[Value]:
    """The parts of an argument that is a tuple of several."""
    for option in options(argument):
        if isinstance(option, Seq) and option.exact and len(option.items) > 1:
            return option.items
    return []


def _name(value: Value, number: int) -> str:
    names = [o.name for o in options(value) if isinstance(o, (Attr, Carried))]
    return names[0] if names else f"stream {number + 1}"
