"""Explains why training's log-probs differ from the rollout's, by comparing the parts of one step on both sides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scaffold.verify.formulas import relative
from scaffold.verify.rollout.engine_side import recorder

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.recipe import Recipe

SAME = 1e-4  # relative; float32 gives 1e-6, a mistake 1e-2
_SETTINGS = ("noise_level", "sde_type", "include_logprob_normalizer")


@dataclass(frozen=True)
class _Call:
    """One call of a denoiser: its output by row, and those inputs that have one number per row."""

    rows: list[Tensor]
    numbers: list[float]


def cause(bench: EngineUnderTest, recipe: Recipe) -> str | None:
    """Return how the first recorded step of one sample differs; None if no visible part differs."""
    denoiser = getattr(bench.engine.pipeline, "transformer", None)
    if not isinstance(denoiser, torch.nn.Module):
        return None
    with _calls(denoiser) as theirs, recorder.steps() as taken:
        sample = bench.roll_out(recipe, bench.texts[:1])[0]
    with _calls(bench.training.module) as ours, recorder.steps() as scored:
        bench.training.recompute([sample], recipe)
    step = recorder.step_at(taken, float(sample.timesteps[0])) if sample.steps else None
    if step is None or not scored or not theirs or len(theirs) % len(taken) or len(ours) % len(scored):
        return None
    each, begin = len(theirs) // len(taken), taken.index(step) * (len(theirs) // len(taken))
    rollout, training = theirs[begin : begin + each], ours[: len(ours) // len(scored)]
    told = _of_outputs(rollout, training)
    if told is None and relative(scored[0].velocity.reshape(-1), step.velocity.reshape(-1)) > SAME:
        told = _of_guidance(rollout, step.velocity, scored[0].velocity)
    return told or _of_step(step, scored[0])


@contextlib.contextmanager
def _calls(module: torch.nn.Module) -> Iterator[list[_Call]]:
    found: list[_Call] = []

    def seen(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        first = output if isinstance(output, Tensor) else output[0]
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.ndim <= 1]
        numbers = [float(value.reshape(-1)[0]) for value in given if value.is_floating_point() and value.numel()]
        found.append(_Call([row.detach().float().clone().reshape(-1) for row in first], numbers))

    hook = module.register_forward_hook(seen, with_kwargs=True)
    try:
        yield found
    finally:
        hook.remove()


def _of_outputs(rollout: Sequence[_Call], training: Sequence[_Call]) -> str | None:
    theirs, ours = ([row for call in calls for row in call.rows] for calls in (rollout, training))
    if len(theirs) != len(ours):
        return f"the rollout has {len(theirs)} predictions of its denoiser a step, training {len(ours)}"
    if any(one.shape != other.shape for one in ours for other in theirs):
        return None
    alike = [any(relative(one, other) <= SAME for other in theirs) for one in ours]
    if all(alike) and len(ours) > 1 and relative(ours[0], ours[1]) <= SAME < relative(theirs[0], theirs[1]):
        return "both branches of training predict the same, those of the rollout do not: one gets the other's inputs"
    if all(alike):
        return None
    if any(alike):
        return "one branch of training is the rollout's; the other gets other inputs, an embedding of its prompt say"
    numbers = ([call.numbers for call in calls] for calls in (rollout, training))
    told, own = (next((value for value in found if value), []) for found in numbers)
    if told and own and abs(told[0] - own[0]) > SAME * max(abs(told[0]), 1e-6):
        return f"the rollout tells its denoiser the noise level as {told[0]:.6g}, training as {own[0]:.6g}"
    return (
        "of one noise level and the same latents the training module predicts something else than the rollout's"
        " denoiser: look at positions (RoPE), layers, weights, and what is made of the prompt"
    )


def _of_guidance(rollout: Sequence[_Call], theirs: Tensor, ours: Tensor) -> str:
    rows = [row for call in rollout for row in call.rows]
    told = "every prediction of the denoiser is the rollout's, the velocity made of them is not"
    if len(rows) != 2 or rows[0].numel() != theirs.numel():
        return f"{told}: look at guidance, and at the sign"
    first, second = rows
    apart = first - second
    scale = [float(((v.reshape(-1) - second) @ apart) / apart.square().sum()) for v in (theirs, ours)]
    if abs(scale[0] + scale[1] - 1) <= SAME * max(1.0, abs(scale[0])):
        return f"{told}: in guidance the predictions with and without the prompt are exchanged"
    return f"{told}: the rollout guides with {scale[0]:.4g}, training with {scale[1]:.4g}"


def _of_step(rollout: recorder.StepTaken, training: recorder.StepTaken) -> str | None:
    told = "the velocity is the rollout's"
    for name in _SETTINGS:
        theirs, ours = rollout.asked.get(name), training.asked.get(name)
        if theirs != ours:
            return f"{told}, but training scores with {name} = {ours!r} and the rollout with {theirs!r}"
    if abs(rollout.sigma - training.sigma) > SAME or abs(rollout.following - training.following) > SAME:
        levels = [f"{step.sigma:.5g} to {step.following:.5g}" for step in (rollout, training)]
        return f"{told}, but its step goes from noise level {levels[0]} and training's from {levels[1]}"
    if training.given is not None and training.given.numel() == rollout.result.numel():
        given = training.given.reshape(-1)
        if relative(given, rollout.result.reshape(-1)) > SAME:
            same = relative(given, rollout.sample.reshape(-1)) <= SAME
            what = "the sample before the step" if same else "another one"
            return f"{told}, but training scores {what} as prev_sample, not the sample that the step gave"
    return None
