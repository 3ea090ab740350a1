"""Joint streams: one turn steps two samples, such as video and audio, each on a schedule of its own."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, same
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.updates import through_model
from scaffold.inspect.program.values import Attr, Carried, Seq, Value
from scaffold.inspect.refusals.refusal import Refusal

ORDER = 30


def refusal(program: Program) -> Refusal | None:
    """More than one sample is updated in a turn from one forward of the model."""
    loop = program.denoising
    if loop is None:
        return None
    names = _streams(loop)
    if len(names) < 2:
        return None
    reason = (
        f"joint streams: one turn steps {' and '.join(names)} from one prediction, each by a scheduler or a schedule "
        "of its own, while a step's log-prob is that of one sample"
    )
    return Refusal(reason, [*names.values(), loop.loop.at], on_this_path_only=True)


def _streams(loop: Denoising) -> dict[str, Evidence | None]:
    """The variables that are samples of one prediction, with the place of their update."""
    found: dict[str, Evidence | None] = {}
    if loop.step is not None and loop.sample is None:
        # step((prediction, prediction), time, (sample, sample))
        tuples = [a for a in [*loop.step.args, *loop.step.kwargs.values()] if _pair(a)]
        if len(tuples) > 1:
            return {_name(i, n): loop.step.at for n, i in enumerate(_pair(tuples[-1]))}
    samples = [s.sample for s in loop.streams if s.sample is not None]
    for stream in loop.streams:
        update = stream.step or stream.inline
        if stream.sample is None or update is None:
            continue
        # Streams that one model denoises together: each is predicted from the other, too.
        if any(o is stream.sample or through_model(update, o) for o in samples):
            found.setdefault(stream.sample.name, update.at)
    outputs = [s.model_output for s in loop.streams if s.model_output is not None]
    if len(found) > 1 and all(same(o, outputs[0]) for o in outputs):
        return {}
    return found


def _pair(argument: Value) -> list[Value]:
    """The parts of an argument that is a tuple of several."""
    for option in options(argument):
        if isinstance(option, Seq) and option.exact and len(option.items) > 1:
            return option.items
    return []


def _name(value: Value, number: int) -> str:
    names = [o.name for o in options(value) if isinstance(o, Attr | Carried)]
    return names[0] if names else f"stream {number + 1}"
