"""Schedulers of the rollout in the place of a pipeline's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runtime.model import CallPlan
from runtime.recording import SchedulerInPlace


class Euler:
    def __init__(self, levels: list[float]) -> None:
        self.levels, self.begin_index = levels, 0

    def set_begin_index(self, index: int) -> None:
        self.begin_index = index

    def step(self, velocity: torch.Tensor, _: Any, sample: torch.Tensor, return_dict: bool) -> tuple[torch.Tensor]:
        return (sample + (self.levels[self.begin_index + 1] - self.levels[self.begin_index]) * velocity,)


def setup_sigmas(scheduler: Any, count: int, **_: Any) -> list[float]:
    sigmas = [1 - index / count for index in range(count)]
    scheduler.sigmas, scheduler.timesteps = torch.tensor([*sigmas, 0.0]), torch.tensor(sigmas)
    return sigmas


def begun(**given: Any) -> Any:
    common: Any = SimpleNamespace(CALLS=CallPlan(), INCLUDE_LOGPROB_NORMALIZER=False, setup_sigmas=setup_sigmas)
    scheduler = SchedulerInPlace(common, "APipeline")
    asked: dict[str, Any] = {
        "window": None,
        "noise_level": 0.7,
        "sde_type": "sde",
        "record_log_probs": True,
        "generator": None,
    }
    scheduler.begin(num_inference_steps=4, **asked, **given)
    followed = scheduler.following(Euler([1.0, 0.75, 0.5, 0.25, 0.0]))
    assert followed is scheduler  # a method that makes the scheduler steps with what it gets here
    return followed


def test_steps_are_recorded_where_no_denoiser_is_watched() -> None:
    scheduler, latents = begun(record_calls=False), torch.randn(1, 2, 3)
    for level in (1.0, 0.75, 0.5, 0.25):
        latents = scheduler.step(0.5 * latents, level, latents).prev_sample
    recorded, _, log_probs = scheduler.end()
    assert recorded.shape == (1, 5, 2, 3)
    assert log_probs.shape == (1, 4)


def test_a_step_without_a_call_is_refused_where_one_is_watched() -> None:
    with pytest.raises(RuntimeError, match="without calling its denoiser"):
        begun().step(torch.zeros(1, 2, 3), 1.0, torch.randn(1, 2, 3))
