"""Deliberate mistakes on the training side: a comparison that does not detect them proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import LOG_PROB, Measurement, control, control_measurement
from scaffold.verify.rollout.scenarios.other_weights import with_tapes_of

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 80
DTYPE = "float32"
OFF = control("guidance-off", "training without guidance")
OTHER = control("guidance-scale", "training with a guidance scale that is less by one")
END = control("end-token", "training without the prompt's end token")
ORDER_OF_TOKENS = control("reversed-prompt", "training with the prompt reversed")
CHECKS = (OFF, OTHER, END, ORDER_OF_TOKENS)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Recompute the same rollouts with each mistake."""
    if bench.task.facts.get("ported"):
        yield from _of_recorded_calls(bench)
        return
    prompts = bench.prompts
    if bench.table is not None and bench.table.columns:
        yield from _of_embeddings(bench)
        return
    yield control_measurement(
        ORDER_OF_TOKENS, bench.compare(bench.first, bench.recipe, change=prompts.reversed).log_prob
    )
    if not prompts.has_end:
        yield Measurement(END.id, None, "prompts have no end token", skipped=True)
    else:
        yield control_measurement(END, bench.compare(bench.first, bench.recipe, change=prompts.without_end).log_prob)
    scale = bench.task.facts["guidance"]["scale"]
    yield control_measurement(OFF, bench.compare(bench.first, bench.guided(1.0)).log_prob)
    yield control_measurement(OTHER, bench.compare(bench.first, bench.guided(scale - 1.0)).log_prob)


def _of_embeddings(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Where training is given what the rollout made of a prompt: that of another prompt in its place."""
    samples = bench.first
    extras = [sample.extra for sample in samples]
    others = [replace(sample, extra=extra) for sample, extra in zip(samples, extras[1:] + extras[:1], strict=True)]
    found = control_measurement(ORDER_OF_TOKENS, bench.compare(others, bench.recipe).log_prob)
    yield replace(found, reason=f"with what the rollout made of another prompt in its place, {found.reason}")
    yield Measurement(END.id, None, "training is given no token ids", skipped=True)
    scale = bench.task.facts["guidance"]["scale"]
    yield control_measurement(OFF, bench.compare(samples, bench.guided(1.0)).log_prob)
    yield control_measurement(OTHER, bench.compare(samples, bench.guided(scale - 1.0)).log_prob)


def _of_recorded_calls(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Where training is given the calls of the rollout: those of another prompt, and other guidance."""
    samples = bench.first
    extras = [sample.extra for sample in samples]
    others = [replace(sample, extra=extra) for sample, extra in zip(samples, extras[1:] + extras[:1], strict=True)]
    found = control_measurement(ORDER_OF_TOKENS, bench.compare(others, bench.recipe).log_prob)
    yield replace(found, reason=f"with the recorded calls of another prompt in its place, {found.reason}")
    yield Measurement(END.id, None, "training is given recorded calls and no token ids", skipped=True)
    scale = bench.task.facts["guidance"]["scale"]
    for check, other in ((OFF, bench.neutral), (OTHER, (scale or 2.0) - 0.5)):
        if bench.training.carries:
            if scale is None:
                yield Measurement(check.id, None, "the pipeline has no guidance scale", skipped=True)
                continue
            guided = bench.roll_out(bench.guided(other))
            changed, what = with_tapes_of(bench, samples, guided), "what a rollout of scale {:g} made of it"
            effect = bench.compare(changed, bench.recipe).log_prob
            if effect <= LOG_PROB:  # a denoiser that is told the scale: the calls have it, and not what is made of them
                changed = [replace(sample, extra=told.extra) for sample, told in zip(samples, guided, strict=True)]
                effect, what = bench.compare(changed, bench.recipe).log_prob, "the calls of a rollout of scale {:g}"
            found = control_measurement(check, effect)
            yield replace(found, reason=f"with {what.format(other)}, {found.reason}")
            continue
        try:
            yield control_measurement(check, bench.compare(samples, bench.guided(other)).log_prob)
        except ValueError as error:
            yield Measurement(check.id, 0.0, f"training refuses it: {' '.join(str(error).split())[:200]}")
