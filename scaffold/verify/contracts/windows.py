"""The SDE window: what is recorded of it, where noise falls, and how it moves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from scaffold.attributes import with_attribute, with_entries
from scaffold.verify.contracts.rollout import recomputed
from scaffold.verify.formulas import difference, relative
from scaffold.verify.measured import Attempts, Measured
from scaffold.verify.subject.rollout import RolloutDriver, drive
from scaffold.verify.subject.stand_in_velocity import KnownVelocity

ALIGNED_STEPS = 6
LEAST_NOISE = 1e-3
NOISED_STEPS, NOISED_SIZE = 8, 2
KINDS = ("sde", "cps", "dance_sde")
TRAINING_STEPS = (*range(1, 9), 50, 100, 200, 400)  # a window may also advance once in many steps
RANKS, SEEDS, STEPS, SIZE = (0, 3), (3, 4), 12, 2
MORE_SEEDS = range(5, 13)
PROMPTS = {
    3: {"prompt": "a sign", "prompt_token_ids": [1, 2, 3]},
    4: {"prompt": "two signs", "prompt_token_ids": [1, 4, 5, 3]},
}
Begins = dict[int, list[int]]


class Alignment:
    """Every position of the SDE window keeps latents, timesteps and log-probs together."""

    ID = "window-alignment"
    TITLE = "at every SDE window position latents, timesteps and log-probs belong together"
    NOT_RECORDED = "the loop is the pipeline's own: see rollout-window-alignment of level rollout"
    PITFALLS = (2, 5, 6, 13)
    LIMIT = 1e-6  # as for rollout-log-probs

    @staticmethod
    def run(subject: Any) -> Measured:
        """Roll out every window of the schedule, compare with the walk itself and with training's log-probs."""
        driver, module = drive(subject), KnownVelocity(subject)
        count = len(driver.roll_out(steps=ALIGNED_STEPS).sigmas)
        worst, windows = 0.0, 0
        wrong: dict[str, list[str]] = {}
        attempts = Attempts()
        for size in range(1, count + 1):
            for begin in range(count - size + 1):
                end, windows = begin + size, windows + 1
                window: dict[str, Any] = {"sde_window_size": size, "sde_window_range": [begin, end]}
                rolled: Any = attempts.of(f"[{begin},{end})", driver.roll_out, steps=ALIGNED_STEPS, **window)
                if rolled is None:
                    continue
                found = _misaligned(rolled, begin, end)
                for line in found:
                    wrong.setdefault(line, []).append(f"[{begin},{end})")
                if not found:
                    again = attempts.of(f"[{begin},{end})", recomputed, subject, module, rolled, "sde")
                    worst = worst if again is None else max(worst, difference(again, rolled.log_probs))
        problems = [f"{line} at {', '.join(where)}" for line, where in wrong.items()] + attempts.problems
        return Measured(
            f"{windows} windows of {count} steps, log-probs {worst:.1e} apart",
            problems,
            worst,
            Alignment.LIMIT,
            "absolute",
            6e-8,
        )


def _misaligned(rolled: Any, begin: int, end: int) -> list[str]:
    """Return the problems of one window, each part checked separately."""
    size = end - begin
    found = []
    kept = 0 if rolled.log_probs is None else rolled.log_probs.numel()
    if kept != size:
        lost = f"loses {size - kept} of its log-probs" if kept < size else f"has {kept - size} log-probs too many"
        found.append(lost if kept else "loses all log-probs")
    elif rolled.log_probs.shape != (1, size):
        found.append(f"has log-probs of shape {tuple(rolled.log_probs.shape)}")
    if rolled.timesteps is None or rolled.timesteps.shape != (1, size):
        found.append(f"has timesteps {None if rolled.timesteps is None else tuple(rolled.timesteps.shape)}")
    else:
        expected = torch.tensor(rolled.times[begin:end], dtype=torch.float64)
        if not difference(rolled.timesteps[0], expected) <= 1e-5 * max(1.0, float(expected.max())):
            shown = [round(value, 4) for value in rolled.timesteps[0].tolist()]
            found.append(f"has the timesteps {shown} of other steps")
    if rolled.latents is None or rolled.latents.shape[:2] != (1, size + 1):
        found.append(f"has latents {None if rolled.latents is None else tuple(rolled.latents.shape[:2])}")
        return found
    walked = torch.stack([sample.reshape(rolled.latents.shape[2:]) for sample in rolled.walked[begin : end + 1]])
    # A scale of the noise that is divided out and multiplied in again rounds; the latents of another step are far off.
    if not difference(rolled.latents[0], walked) <= 1e-6 * float(walked.float().abs().max()) + 1e-7:
        found.append("has latents of other steps, or changed ones")
    return found


class Noise:
    """Noise falls into the SDE window and nowhere else."""

    ID = "window-noise"
    TITLE = "a step outside of the SDE window is the plain integration, one inside adds noise"
    NOT_RECORDED = "the loop is the pipeline's own: see rollout-window-noise of level rollout"
    PITFALLS = (2, 15)
    # Relative to the largest latent: float32 gives 1e-7; a step with noise, of which training hears nothing, 1e-1.
    LIMIT = 1e-5

    @staticmethod
    def run(subject: Any) -> Measured:
        """Follow the loop through windows at its begin, in its middle and at its end, with each SDE type."""
        driver = drive(subject)
        count = len(driver.roll_out(steps=NOISED_STEPS).sigmas)
        worst, outside = 0.0, 0
        wrong: dict[str, list[str]] = {}
        attempts = Attempts()
        for kind in KINDS:
            for begin in (0, count // 2 - 1, count - NOISED_SIZE):
                window: dict[str, Any] = {
                    "sde_window_size": NOISED_SIZE,
                    "sde_window_range": [begin, begin + NOISED_SIZE],
                }
                rolled: Any = attempts.of(kind, driver.roll_out, steps=NOISED_STEPS, sde_type=kind, **window)
                if rolled is None:
                    break
                for step, apart in enumerate(_from_plain(driver, rolled)):
                    inside = begin <= step < begin + NOISED_SIZE
                    last = step == count - 1  # its noise may be zero: cps ends at noise level 0
                    if not inside:
                        worst, outside = max(worst, apart), outside + 1
                    if not inside and not apart <= Noise.LIMIT:
                        wrong.setdefault("outside of the window is not the plain integration", []).append(
                            f"{kind} {step}"
                        )
                    elif inside and not last and not apart > LEAST_NOISE:
                        wrong.setdefault("inside of the window adds no noise", []).append(f"{kind} {step}")
        problems = [f"a step {line} ({_first(where)})" for line, where in wrong.items()] + attempts.problems
        line = f"{outside} steps outside of windows of {NOISED_SIZE}: {worst:.1e} from the plain integration"
        return Measured(line, problems, worst, Noise.LIMIT, "relative", 1e-7)


def _from_plain(driver: RolloutDriver, rolled: Any) -> list[float]:
    """Return the distance of each step's sample from the noise-free step."""
    levels = pairwise([*rolled.sigmas, 0.0])
    return [
        relative(after.double(), before.double() + (following - now) * driver.velocity(before, now).double())
        for (before, after), (now, following) in zip(pairwise(rolled.walked), levels, strict=True)
    ]


def _first(where: list[str]) -> str:
    return ", ".join(where[:3]) + (f" and {len(where) - 3} more" if len(where) > 3 else "")


class PerStep:
    """One window for each training step, whatever the request, the rank and the replica."""

    ID = "window-per-step"
    TITLE = "every request, rank and replica of a training step has one SDE window, inside its range, and steps differ"
    ROLLED = True
    PITFALLS = (15,)
    LIMIT = 1.0  # samples of one step with different windows have no common steps: the run dies

    @staticmethod
    def run(subject: Any) -> Measured:
        """Roll out the same steps in two processes, one backwards, as two ranks each, and see where windows are."""
        driver = drive(subject)
        low, high = 1, len(driver.roll_out(steps=STEPS).sigmas) - 1
        other = _in_another_process(lambda: _begins(driver, low, high, tuple(reversed(TRAINING_STEPS))))
        here = _begins(driver, low, high, TRAINING_STEPS)
        found = {step: {*begins, *other[step]} for step, begins in here.items()}
        same = len({frozenset(of_step) for of_step in found.values()}) == 1
        if same and all(len(of_step) == 1 for of_step in found.values()):
            # Two seeds may draw one window by chance.
            found[TRAINING_STEPS[0]].update(_begin(driver, low, high, TRAINING_STEPS[0], seed) for seed in MORE_SEEDS)
        most, begins = max(map(len, found.values())), set().union(*found.values())
        problems = []
        outside = sorted(begin for begin in begins if not low <= begin <= high - SIZE)
        if outside:
            problems.append(f"a window begins at step {outside[0]}, outside of [{low}, {high})")
        several = [step for step, of_step in found.items() if len(of_step) > 1]
        if several:
            source = "; they follow the request, its seed say, or the rank and not the training step" if same else ""
            problems.append(f"training step {several[0]} has windows at steps {sorted(found[several[0]])}{source}")
        elif same:
            problems.append(
                f"all {len(found)} training steps have the same windows: the rest of the range is never trained"
            )
        places = f"2 replicas of {len(RANKS)} ranks with {len(SEEDS)} requests"
        line = f"{most} window a training step over {places}, {len(begins)} over {len(found)} training steps"
        return Measured(line, problems, float(most), PerStep.LIMIT, "windows")

    @staticmethod
    def run_recorded(subject: Any) -> Measured:
        """Compare the first steps of the real rollout's windows by training step; each rank sent its own request."""
        windows = {step: {round(level, 6) for level in found} for step, found in subject.recording["windows"].items()}
        most, begins = max(map(len, windows.values())), set().union(*windows.values())
        problems = []
        if len({frozenset(found) for found in windows.values()}) == 1:
            problems.append(f"all {len(windows)} training steps have the same windows: the rest is never trained")
        ranks = len(next(iter(subject.recording["windows"].values())))
        line = f"{most} window a training step over {ranks} ranks, {len(begins)} over {len(windows)} training steps"
        return Measured(line, problems, float(most), PerStep.LIMIT, "windows")


def _begins(driver: RolloutDriver, low: int, high: int, training_steps: tuple[int, ...]) -> Begins:
    """Return the first step of each rollout's window, by training step."""
    found: Begins = {}
    for rank in RANKS:
        with (
            with_entries(os.environ, {"LOCAL_RANK": str(rank), "RANK": str(rank)}),
            with_attribute(torch.distributed, "get_rank", lambda *_, rank=rank, **__: rank),
        ):
            for step in training_steps:
                for seed in SEEDS:
                    found.setdefault(step, []).append(_begin(driver, low, high, step, seed))
    return found


def _begin(driver: RolloutDriver, low: int, high: int, training_step: int, seed: int) -> int:
    window: dict[str, Any] = {"sde_window_size": SIZE, "sde_window_range": [low, high]}
    rolled = driver.roll_out(
        steps=STEPS, seed=seed, prompt=dict(PROMPTS.get(seed, PROMPTS[3])), global_steps=training_step, **window
    )
    if rolled.timesteps is None:
        raise ValueError("a rollout with noise returns no timesteps")
    first = float(rolled.timesteps.flatten()[0])
    distances = [abs(time - first) for time in rolled.times]
    return distances.index(min(distances))


def _in_another_process(work: Callable[[], Begins]) -> Begins:
    """Return the result of ``work`` in a fork, which starts with this process's state."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writer, "w") as answer:
                json.dump(sorted(work().items()), answer)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        raise ValueError("the rollout raises in a second process")
    return dict(json.loads(text))
