"""Why FlowGRPO's log-prob of a step may not apply."""

from __future__ import annotations

import ast
from typing import NamedTuple

from scaffold.inspect.facts import Evidence
from scaffold.inspect.guidance import plain_parts
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import depends, options, same, walk
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.updates import NOISE_CALLS, STEP_METHOD, through_model
from scaffold.inspect.program.values import NONE, Attr, Call, Carried, Const, Obj, Seq
from scaffold.inspect.step_arguments import is_difference
from scaffold.source.values import Func, Value


class Refusal(NamedTuple):
    """A reason in words, and the places that show it, the decisive one first.

    ``on_this_path_only`` says that diffusers' path, where the denoiser loads through diffusers, is open all the same.
    ``impossible`` says that nobody could train the pipeline; the others are not supported here.
    """

    reason: str
    places: list[Evidence | None]
    on_this_path_only: bool = False
    impossible: bool = False


# Placeholders: a registered class whose constructor does nothing but raise.
_PLACEHOLDER = "a placeholder: its constructor always raises, so that there is no pipeline to train"


def is_placeholder(program: Program) -> Refusal | None:
    """The constructor raises under no condition."""
    found = program.cls.find_method("__init__")
    if found is None:
        return None
    owner, init = found
    raised = next((s for s in init.body if isinstance(s, ast.Raise)), None)
    if raised is None:
        return None
    return Refusal(
        _PLACEHOLDER, [Evidence(owner.module.file, raised.lineno), program.place(program.cls)], impossible=True
    )


# Distilled few-step loops: each turn predicts the clean sample and puts new noise on it.
_RENOISE = (
    "a distilled few-step loop: each turn predicts the clean sample and puts new noise on it, which is another step "
    "than those whose log-prob is rendered"
)


def _renoises(program: Program) -> Refusal | None:
    """The loop's only way to update the sample mixes a prediction with new noise."""
    loop = program.denoising
    if loop is None:
        return None
    if loop.step is None and loop.renoised is not None and not _leads_on(loop):
        return Refusal(_RENOISE, [loop.renoised.at, loop.loop.at])
    if loop.step is not None and (flag := _stochastic(program, loop.step)) is not None:
        return Refusal(_RENOISE, [loop.step.at, flag.at])
    return None


def _leads_on(loop: Denoising) -> bool:
    """Whether the loop has an update, too, that goes by the difference of neighbouring times, as a step does.

    One that goes by the turn's time alone is the clean prediction.
    """
    parts = plain_parts(loop.inline) if loop.inline is not None else []
    return any(is_difference(part, loop.number) for part in parts)


def _stochastic(program: Program, step: Call) -> Value | None:
    """A scheduler that is always constructed to renoise."""
    whole = program.attribute_value(step.receiver) if step.receiver is not None else None
    held = [o for o in options(whole) if isinstance(o, (Obj, Call))]
    flags = [o.kwargs.get("stochastic_sampling") for o in held]
    on = [f for f in flags if isinstance(f, Const) and f.value is True]
    return on[0] if on and len(on) == len(flags) else None


# Per-token samplers: a small head is denoised once for each token of an autoregressive model.
_PER_TOKEN = (
    "a per-token sampler: the loop denoises one token inside the loop over tokens, so an image has as many "
    "trajectories as tokens"
)


def _per_token(program: Program) -> Refusal | None:
    """The denoising loop runs inside another loop, on noise of one vector a sample drawn in that loop's turn."""
    loop = program.denoising
    if loop is None or not loop.loop.outer or loop.sample is None or loop.sample.init is None:
        return None
    outer = loop.loop.outer[-1]
    for node in walk(loop.sample.init):
        if isinstance(node, Call) and node.name in NOISE_CALLS and outer in node.loops and _is_vector(node):
            return Refusal(_PER_TOKEN, [loop.loop.at, program.trace.loops[outer].at, node.at])
    return None


def _is_vector(noise: Call) -> bool:
    """Whether the noise has a batch and a channel axis only."""
    shape: Value | None = noise.argument(0, "shape", "size")
    return shape is not None and any(isinstance(o, Seq) and o.exact and len(o.items) == 2 for o in options(shape))


# Joint streams: one turn steps two samples, such as video and audio, each on a schedule of its own.
def _joint_streams(program: Program) -> Refusal | None:
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


def find_refusal(program: Program) -> Refusal | None:
    """The first reason that applies to the pipeline."""
    reasons = (is_placeholder, _renoises, _per_token, _joint_streams)
    return next((refusal for reason in reasons if (refusal := reason(program)) is not None), None)
