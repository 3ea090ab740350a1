"""Every position of the SDE window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Check, Measurement, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.trajectory import Trajectory

ORDER = 40
DTYPE = "float32"
SIZE = 2
ALIGNED = Check(
    "rollout-window-alignment",
    "At every position of the SDE window, as many steps are recorded as asked, of the right noise levels, each with"
    " its log-prob and latents",
    0,
    "windows",
    (2,),
)
PAIR = equality("window", "Every position of the SDE window", (2,))
# Relative; float32 gives 1e-7, a step with noise 1e-1.
PLAIN = Check(
    "rollout-window-noise",
    "Steps before the SDE window are the plain integration: noise falls into the window only",
    1e-5,
    "relative",
    (2, 15),
)
CHECKS = (ALIGNED, *PAIR, PLAIN)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Place a window of two at each step of the schedule."""
    import torch

    from scaffold.verify.rollout.engine_side.comparison import join

    schedule = bench.first[0].timesteps
    walked = bench.first[0].walked or bench.training.steps(bench.recipe)  # of a scheduler that nobody watches
    wrong, runs = [], []
    if bench.recipe.sde_window_size is None and len(schedule) < walked:
        wrong.append(f"without a window: {len(schedule)} of {walked} steps are recorded")
    positions = range(max(len(schedule), walked if bench.recipe.sde_window_size is None else 0) - SIZE + 1)
    for begin in positions:
        recipe = replace(bench.recipe, sde_window_size=SIZE, sde_window_range=(begin, begin + SIZE))
        samples = bench.roll_out(recipe, bench.texts[:1])
        runs.append((samples, recipe))
        sample = samples[0]
        name = f"[{begin}, {begin + SIZE})"
        if not sample.aligned or sample.steps != SIZE:
            told = f"{sample.steps} steps with {sample.recorded} log-probs and {int(sample.latents.shape[0])} latents"
            wrong.append(f"{name}: {told}, where {SIZE} steps with {SIZE} and {SIZE + 1} are asked for")
        elif begin + SIZE > len(schedule):
            continue  # the schedule's own end is not known
        elif not torch.allclose(sample.timesteps, schedule[begin : begin + SIZE], rtol=1e-6, atol=1e-6):
            wrong.append(f"{name}: noise levels {[round(float(t), 4) for t in sample.timesteps]}")
    for size in range(1, SIZE + 2):  # anywhere in the schedule, as a launch script asks
        recipe = replace(bench.recipe, sde_window_size=size, sde_window_range=(0, len(positions) + SIZE - 1))
        sample = bench.roll_out(recipe, bench.texts[:1])[0]
        if not sample.aligned or sample.steps != size:
            told = f"{sample.steps} steps with {sample.recorded} log-probs and {int(sample.latents.shape[0])} latents"
            wrong.append(f"a window of {size} anywhere: {told}")
    told = "; ".join(wrong) or f"{len(positions)} positions of a window of {SIZE}"
    yield Measurement(ALIGNED.id, float(len(wrong)), told, floor=0.0)
    yield _plain([samples[0] for samples, _ in runs])
    parts = [bench.compare(samples, recipe) for samples, recipe in runs]
    yield from bench.equal(PAIR, join(parts))


def _plain(samples: Sequence[Trajectory]) -> Measurement:
    """One request, its window one step later each time: where a window begins, the walk has come without noise."""
    from scaffold.verify.formulas import relative

    apart = []
    for before, after in pairwise(samples):
        velocity, level, following = before.velocities[0], before.sigmas[0], after.sigmas[0]
        if velocity is None or level is None or following is None or not (before.aligned and after.aligned):
            continue
        begin, end = before.latents[0], after.latents[0]
        if velocity[0].shape != begin.shape:  # of the part that no step leaves as it is
            begin, end = begin[begin != end], end[begin != end]
        apart.append(relative(end, begin.double() + (following - level) * velocity[0].double()))
    if not apart:
        return Measurement(PLAIN.id, None, "no two windows are recorded whole, with their velocities", skipped=True)
    return Measurement(PLAIN.id, max(apart), f"{len(apart)} steps before a window", floor=2**-23)
