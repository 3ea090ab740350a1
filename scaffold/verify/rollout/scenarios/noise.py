"""Where noise falls and how: the three forms of a step, the SDE window, and independence."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from scaffold.attributes import with_entries
from scaffold.verify.rollout.check import LOG_PROB, Check, Measurement, NotApplicable, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.recorder import StepTaken
    from scaffold.verify.rollout.engine_side.trajectory import Trajectory

PITFALLS = (5, 7, 13, 29, 30, 31, 44)
TYPES = ("sde", "cps", "dance_sde")
PAIRS = {kind: equality(kind.replace("_", "-"), f"{kind} steps", PITFALLS) for kind in TYPES}
# float32 itself leaves less of some steps: how much is measured with the run's own numbers.
PAIRS["dance_sde"] = replace(PAIRS["dance_sde"][0], limit=None), PAIRS["dance_sde"][1]


class Sde:
    """The three forms of the stochastic step, with the package's own settings."""

    ORDER = 10
    DTYPE = "float32"
    CHECKS = tuple(check for pair in PAIRS.values() for check in pair)

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Compare every prompt by itself."""
        from scaffold.verify.rollout.engine_side import recorder

        for kind, pair in PAIRS.items():
            recipe = replace(bench.recipe, sde_type=kind)
            samples = bench.first if recipe == bench.recipe else bench.roll_out(recipe)
            with recorder.steps() as taken:
                found = bench.compare(samples, recipe)
            log_prob, velocity = bench.equal(pair, found)
            if pair[0].limit is None:
                log_prob = limited(log_prob, [step.difference for step in found.steps], taken, recipe.noise_level)
            yield from (log_prob, velocity)


def limited(found: Measurement, apart: Sequence[float], taken: Sequence[StepTaken], noise: float) -> Measurement:
    """The same with a limit: that of the step that is worst against its own.

    Args:
        found: the largest difference of all steps.
        apart: the difference of each.
        taken: these steps as training scored them.
        noise: eta.
    """
    from scaffold.verify.formulas import log_prob_limit

    if found.value is None or not math.isfinite(found.value) or len(apart) != len(taken):
        return replace(found, limit=LOG_PROB)
    limits = [log_prob_limit("dance_sde", LOG_PROB, step, noise) for step in taken]
    worst = max(range(len(apart)), key=lambda at: apart[at] / limits[at])
    told = (
        f"{found.reason}; float32 itself allows {max(limits):.1e} at level {taken[limits.index(max(limits))].sigma:g}"
    )
    return replace(found, value=apart[worst], limit=limits[worst], reason=told)


class Window:
    """Every position of the SDE window."""

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

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Place a window of two at each step of the schedule."""
        import torch

        from scaffold.verify.rollout.engine_side.comparison import join

        schedule = bench.first[0].timesteps
        walked = bench.first[0].walked or bench.training.steps(bench.recipe)  # of a scheduler that nobody watches
        wrong, runs = [], []
        if bench.recipe.sde_window_size is None and len(schedule) < walked:
            wrong.append(f"without a window: {len(schedule)} of {walked} steps are recorded")
        positions = range(max(len(schedule), walked if bench.recipe.sde_window_size is None else 0) - Window.SIZE + 1)
        for begin in positions:
            recipe = replace(bench.recipe, sde_window_size=Window.SIZE, sde_window_range=(begin, begin + Window.SIZE))
            samples = bench.roll_out(recipe, bench.texts[:1])
            runs.append((samples, recipe))
            sample = samples[0]
            name = f"[{begin}, {begin + Window.SIZE})"
            if not sample.aligned or sample.steps != Window.SIZE:
                told = (
                    f"{sample.steps} steps with {sample.recorded} log-probs and {int(sample.latents.shape[0])} latents"
                )
                wrong.append(
                    f"{name}: {told}, where {Window.SIZE} steps with {Window.SIZE} and {Window.SIZE + 1} are asked for"
                )
            elif begin + Window.SIZE > len(schedule):
                continue  # the schedule's own end is not known
            elif not torch.allclose(sample.timesteps, schedule[begin : begin + Window.SIZE], rtol=1e-6, atol=1e-6):
                wrong.append(f"{name}: noise levels {[round(float(t), 4) for t in sample.timesteps]}")
        for size in range(1, Window.SIZE + 2):  # anywhere in the schedule, as a launch script asks
            recipe = replace(bench.recipe, sde_window_size=size, sde_window_range=(0, len(positions) + Window.SIZE - 1))
            sample = bench.roll_out(recipe, bench.texts[:1])[0]
            if not sample.aligned or sample.steps != size:
                told = (
                    f"{sample.steps} steps with {sample.recorded} log-probs and {int(sample.latents.shape[0])} latents"
                )
                wrong.append(f"a window of {size} anywhere: {told}")
        told = "; ".join(wrong) or f"{len(positions)} positions of a window of {Window.SIZE}"
        yield Measurement(Window.ALIGNED.id, float(len(wrong)), told, floor=0.0)
        yield _plain([samples[0] for samples, _ in runs])
        parts = [bench.compare(samples, recipe) for samples, recipe in runs]
        yield from bench.equal(Window.PAIR, join(parts))


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
        return Measurement(
            Window.PLAIN.id, None, "no two windows are recorded whole, with their velocities", skipped=True
        )
    return Measurement(Window.PLAIN.id, max(apart), f"{len(apart)} steps before a window", floor=2**-23)


class WindowPerStep:
    """One window of stochastic steps for all requests of a training step, another for other steps."""

    ORDER = 42
    DTYPE = "float32"
    CHECK = Check(
        "rollout-window-per-step",
        "The SDE window is one for all requests and ranks of a training step, and moves with the training step",
        0,
        "training steps",
        (2,),
    )
    CHECKS = (CHECK,)
    SIZE, STEPS, REQUESTS = 2, (1, 2, 3, 5, 8, 100), 2

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Ask for a window of two anywhere in the schedule, by requests of two ranks.

        Raises:
            NotApplicable: contract ``window-per-step`` measures it.
        """
        if bench.table is None:
            raise NotApplicable("contract window-per-step measures it")
        count = bench.first[0].walked
        recipe = replace(bench.recipe, sde_window_size=WindowPerStep.SIZE, sde_window_range=(0, count))
        begins: dict[int, list[float]] = {}
        for step in WindowPerStep.STEPS:
            for rank in range(WindowPerStep.REQUESTS):
                with with_entries(os.environ, {"LOCAL_RANK": str(rank), "RANK": str(rank)}):
                    sample = bench.roll_out(
                        replace(recipe, global_steps=step), bench.texts[rank : rank + 1], seed=5 + rank
                    )
                begins.setdefault(step, []).append(round(float(sample[0].timesteps[0]), 6))
        apart = {step: found for step, found in begins.items() if len(set(found)) > 1}
        moved = len({found[0] for found in begins.values()})
        told = f"{moved} windows in {len(WindowPerStep.STEPS)} training steps"
        if apart:
            step, found = next(iter(apart.items()))
            told = f"requests of training step {step} begin their windows at timesteps {', '.join(map(str, found))}"
        elif moved == 1:
            told = f"the window begins at timestep {begins[1][0]} in each of {len(WindowPerStep.STEPS)} training steps"
        yield Measurement(
            WindowPerStep.CHECK.id,
            float(len(apart) or (len(WindowPerStep.STEPS) if moved == 1 else 0)),
            told,
            floor=0.0,
        )


class IndependentNoise:
    """Noise is independent for each step, each member of a group, and of the initial latents."""

    ORDER = 70
    DTYPE = "float32"
    LIMIT = 0.3
    CHECK = Check(
        "rollout-independent-noise",
        "The noise of every step is independent of that of other steps, of other members of the group, and of the "
        "initial latents",
        LIMIT,
        "correlation",
        (16, 17),
    )
    CHECKS = (CHECK,)

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Correlate what each step added to its mean, over two samples of one prompt.

        The mean is the rollout's own: one that training computes otherwise would be told as noise. Only where the
        rollout's step was not seen does training stand in.
        """
        import torch

        samples = bench.roll_out(bench.recipe, [bench.texts[0]] * 2)
        names, rows = [], []
        for index, sample in enumerate(samples):
            size = sample.latents[0].numel()
            means = [mean for mean in sample.means if mean is not None and mean.numel() == size]
            if not means or len(means) < len(sample.means):
                means = list(bench.training.recompute([sample], bench.recipe).means)
            names.append(f"the initial latents of sample {index + 1}")
            rows.append(sample.latents[0].float().reshape(-1))
            for step, mean in enumerate(means):
                names.append(f"step {step + 1} of sample {index + 1}")
                rows.append(sample.latents[step + 1].float().reshape(-1) - mean.reshape(-1))
        correlation = torch.corrcoef(torch.stack(rows)).abs().fill_diagonal_(0.0)
        worst = int(correlation.argmax())
        one, other = names[worst // len(names)], names[worst % len(names)]
        floor = rows[0].numel() ** -0.5
        yield Measurement(
            IndependentNoise.CHECK.id, float(correlation.max()), f"largest between {one} and {other}", floor=floor
        )
