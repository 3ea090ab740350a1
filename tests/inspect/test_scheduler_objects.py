"""Schedulers on small made-up pipelines: what text says of an object's schedule, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import look, written

STEP = """
self.scheduler.set_timesteps(steps)
for t in self.scheduler.timesteps:
    v = self.net(x, t, cond)
    x = self.scheduler.step(v, t, x, return_dict=False)[0]
"""
DIFFUSERS = (
    "from diffusers import FlowMatchEulerDiscreteScheduler\nself.scheduler = FlowMatchEulerDiscreteScheduler({})"
)
RISING = """
import numpy as np


class FlowMatchEulerDiscreteScheduler:
    def __init__(self, parts=1000, bend=True):
        self.bend = bend
        self.times = None

    def set_timesteps(self, num_inference_steps=None, device=None, positions=None):
        t = np.linspace(0, 1, num_inference_steps + 1, dtype=np.float32)[:-1]
        if self.bend and positions is not None:
            m = np.sqrt(positions) / 40
            t = t / (m - m * t + t)
        self.timesteps = torch.from_numpy(t)
        self._times = torch.cat([self.timesteps, torch.ones(1)])

    def step(self, model_output, timestep, sample, return_dict=True):
        now, after = self._times[self.index], self._times[self.index + 1]
        prev_sample = sample + (after - now) * model_output
        return (prev_sample,)
"""

LOCAL = "self.scheduler = FlowMatchEulerDiscreteScheduler()"


def test_a_class_of_diffusers(tmp_path: Path) -> None:
    found = look(tmp_path, STEP, init=DIFFUSERS.format("shift=2.5"))
    assert (found.value("scheduler.steps"), found.fact("scheduler.shift").confidence) == ("n", "unknown")


def test_a_class_of_the_same_name_in_the_source(tmp_path: Path) -> None:
    found = look(tmp_path, STEP, init=LOCAL, before=RISING)
    assert (found.value("scheduler.class"), found.value("scheduler.steps")) == ("FlowMatchEulerDiscreteScheduler", "n")
    assert (found.value("scheduler.direction"), found.value("scheduler.shift")) == ("ascending", 1.0)


def test_a_schedule_that_follows_the_size_has_no_shift(tmp_path: Path) -> None:
    sized = STEP.replace("set_timesteps(steps)", "set_timesteps(steps, positions=x.shape[-2] * x.shape[-1])")
    found = look(tmp_path, sized, init=LOCAL, before=RISING)
    assert found.value("scheduler.steps") == "n"
    assert found.fact("scheduler.shift").confidence == "unknown"


def test_an_object_that_a_loader_makes(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights=None):
        from diffusers import FlowMatchEulerDiscreteScheduler

        self.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
"""
    found = look(tmp_path, pipeline=written(STEP, end=loader))
    assert (found.value("scheduler.class"), found.value("scheduler.steps")) == ("FlowMatchEulerDiscreteScheduler", "n")


def test_times_by_the_number_of_the_turn_are_not_followed(tmp_path: Path) -> None:
    text = """
    dt = -1.0 / steps
    for i in range(steps):
        t = 1.0 + i * dt
        v = self.net(x, torch.full((1,), t), cond)
        x = x + dt * v
    """
    found = look(tmp_path, text)
    assert (found.value("scheduler.steps"), found.value("scheduler.direction")) == ("n", None)


def test_a_schedule_that_is_written_out(tmp_path: Path) -> None:
    text = """
    t = torch.linspace(0, 1, steps + 1, dtype=torch.float32)
    t = t + -1.0 * (torch.cos(math.pi / 2 * t) - 1 + t)
    for i in range(t.shape[0] - 1):
        v = self.net(x, t[i], cond)
        x = x + (t[i + 1] - t[i]) * v
    """
    found = look(tmp_path, text)
    assert (found.value("scheduler.steps"), found.value("scheduler.direction")) == ("n", "ascending")
    assert found.value("scheduler.shift") is None


@pytest.mark.parametrize(
    ("noise", "rank"),
    [
        ("torch.stack([torch.randn(4, 8, 8), torch.randn(4, 8, 8)])", 4),
        ("torch.cat([self.tokenizer(steps), torch.randn((1, 4, 2, 8, 8))], dim=2)", 5),
        ("torch.randn(*self.tokenizer(steps))", None),
    ],
)
def test_dimensions_of_the_sample(tmp_path: Path, noise: str, rank: int | None) -> None:
    text = f"x = {noise}\n" + STEP
    assert look(tmp_path, text, init=DIFFUSERS.format("")).value("detail.scheduler.sample_rank") == rank
