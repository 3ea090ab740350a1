"""One window of stochastic steps for all requests of a training step, another for other steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.attributes import with_entries
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

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


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Ask for a window of two anywhere in the schedule, by requests of two ranks.

    Raises:
        NotApplicable: contract ``window-per-step`` measures it.
    """
    if bench.table is None:
        raise NotApplicable("contract window-per-step measures it")
    count = bench.first[0].walked
    recipe = replace(bench.recipe, sde_window_size=SIZE, sde_window_range=(0, count))
    begins: dict[int, list[float]] = {}
    for step in STEPS:
        for rank in range(REQUESTS):
            with with_entries(os.environ, {"LOCAL_RANK": str(rank), "RANK": str(rank)}):
                sample = bench.roll_out(replace(recipe, global_steps=step), bench.texts[rank : rank + 1], seed=5 + rank)
            begins.setdefault(step, []).append(round(float(sample[0].timesteps[0]), 6))
    apart = {step: found for step, found in begins.items() if len(set(found)) > 1}
    moved = len({found[0] for found in begins.values()})
    told = f"{moved} windows in {len(STEPS)} training steps"
    if apart:
        step, found = next(iter(apart.items()))
        told = f"requests of training step {step} begin their windows at timesteps {', '.join(map(str, found))}"
    elif moved == 1:
        told = f"the window begins at timestep {begins[1][0]} in each of {len(STEPS)} training steps"
    yield Measurement(CHECK.id, float(len(apart) or (len(STEPS) if moved == 1 else 0)), told, floor=0.0)
