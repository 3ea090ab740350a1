"""A request leaves no state for the next one."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.contracts.rollout_log_probs import LIMIT, recomputed
from scaffold.verify.formulas import difference, same
from scaffold.verify.measured import Measured
from scaffold.verify.subject.driving import drive
from scaffold.verify.subject.rollout import TRAJECTORY
from scaffold.verify.subject.stand_in_velocity import KnownVelocity

ID = "requests-apart"
TITLE = "a request is sampled and recorded as it asks, whatever the requests before it asked for"
NOT_RECORDED = "the pipeline's own constructor and loop are needed: level rollout sends several requests"
PITFALLS = (7,)
BEFORE: dict[str, dict[str, Any]] = {
    "another noise level": {"noise_level": 0.3},
    "another SDE type": {"sde_type": "cps"},
    "more steps and a window": {"steps": 9, "sde_window_size": 2, "sde_window_range": [3, 5]},
    "no log-probs": {"logprobs": False},
}


def run(subject: Any) -> Measured:
    """Send one request to a pipeline that has served others; its result must equal a fresh pipeline's."""
    module = KnownVelocity(subject)
    alone = drive(subject).roll_out()
    worst, tried = 0.0, []
    problems: list[str] = []
    for name, asked in BEFORE.items():
        driver = drive(subject)
        try:
            driver.roll_out(**asked)
        except (NotImplementedError, ValueError):
            continue  # refused, so it leaves no state
        tried.append(name)
        after = driver.roll_out()
        shapes = [[getattr(getattr(one, part), "shape", None) for part in TRAJECTORY] for one in (alone, after)]
        if shapes[0] != shapes[1] or alone.extra_args != after.extra_args:
            problems.append(f"a request after one with {name} is recorded or asks upstream for something else")
        elif not _equal(after.timesteps, alone.timesteps):
            problems.append(f"a request after one with {name} has other timesteps")
        elif after.log_probs is not None:
            found = difference(recomputed(subject, module, after, "sde"), after.log_probs)
            if found > worst:
                worst = found
                problems += [f"log-probs after a request with {name} are {found:.1e} off"] if found > LIMIT else []
    return Measured(f"requests after {', '.join(tried)}: {worst:.1e} off", problems, worst, LIMIT, "absolute", 6e-8)


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is other if one is None or other is None else same(one, other)
