"""One window for each training step, whatever the request, the rank and the replica."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch

from scaffold.attributes import with_attribute, with_entries
from scaffold.verify.measured import Measured
from scaffold.verify.subject.driving import drive
from scaffold.verify.subject.rollout import RolloutDriver

ID = "window-per-step"
TITLE = "every request, rank and replica of a training step has one SDE window, inside its range, and steps differ"
ROLLED = True
PITFALLS = (15,)
LIMIT = 1.0  # samples of one step with different windows have no common steps: the run dies
TRAINING_STEPS = (*range(1, 9), 50, 100, 200, 400)  # a window may also advance once in many steps
RANKS, SEEDS, STEPS, SIZE = (0, 3), (3, 4), 12, 2
MORE_SEEDS = range(5, 13)
PROMPTS = {
    3: {"prompt": "a sign", "prompt_token_ids": [1, 2, 3]},
    4: {"prompt": "two signs", "prompt_token_ids": [1, 4, 5, 3]},
}

Begins = dict[int, list[int]]


def run(subject: Any) -> Measured:
    """Roll out the same steps in two processes, one of them backwards, as two ranks each, and see where windows lie."""
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
    return Measured(line, problems, float(most), LIMIT, "windows")


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


def run_recorded(subject: Any) -> Measured:
    """Compare the first steps of the real rollout's windows by training step; each rank sent its own request."""
    windows = {step: {round(level, 6) for level in found} for step, found in subject.recording["windows"].items()}
    most, begins = max(map(len, windows.values())), set().union(*windows.values())
    problems = []
    if len({frozenset(found) for found in windows.values()}) == 1:
        problems.append(f"all {len(windows)} training steps have the same windows: the rest is never trained")
    ranks = len(next(iter(subject.recording["windows"].values())))
    line = f"{most} window a training step over {ranks} ranks, {len(begins)} over {len(windows)} training steps"
    return Measured(line, problems, float(most), LIMIT, "windows")
