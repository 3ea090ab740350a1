"""Schedulers on small made-up pipelines: which object, made and asked how, and which way a step goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import look, written

STEP = """
self.scheduler.set_timesteps({asked})
for t in self.scheduler.timesteps:
    v = self.net(x, t, cond)
    x = self.scheduler.step({output}, t, x, return_dict=False)[0]
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
        prev_sample = sample + ({change}) * model_output
        return (prev_sample,)
"""
FORWARD, BACKWARD = "self._times[self.index + 1] - now", "now - self._times[self.index + 1]"


def step(asked: str = "steps", output: str = "v") -> str:
    return STEP.format(asked=asked, output=output)


def rising(change: str = FORWARD) -> str:
    return RISING.replace("{change}", change)


LOCAL = "self.scheduler = FlowMatchEulerDiscreteScheduler()"


def test_a_class_of_diffusers(tmp_path: Path) -> None:
    found = look(tmp_path, step(), init=DIFFUSERS.format("shift=2.5"))
    assert (found.value("scheduler.direction"), found.value("scheduler.shift")) == ("descending", 2.5)
    assert found.value("detail.prediction.sign") == 1
    assert found.value("detail.scheduler.origin")["kind"] == "diffusers"
    assert found.value("detail.scheduler.made")["arguments"] == {"shift": "2.5"}
    assert found.value("detail.scheduler.asked") == {"num_inference_steps": "num_inference_steps"}
    assert found.value("detail.scheduler.levels") == "scheduler.sigmas[:-1]"


def test_a_class_of_the_same_name_in_the_source(tmp_path: Path) -> None:
    found = look(tmp_path, step("steps, positions=x.shape[-2] * x.shape[-1]"), init=LOCAL, before=rising())
    assert found.value("detail.scheduler.origin")["kind"] == "source"
    assert (found.value("scheduler.direction"), found.value("scheduler.shift")) == ("ascending", None)
    assert found.value("detail.scheduler.levels") == "1 - scheduler.timesteps"
    assert found.value("detail.scheduler.asked")["positions"] == "latent_size[0] * latent_size[1]"
    assert found.value("detail.prediction.sign") == -1


def test_the_same_class_without_the_size_has_no_shift(tmp_path: Path) -> None:
    found = look(tmp_path, step(), init=LOCAL, before=rising())
    assert found.value("scheduler.shift") == 1.0


def test_an_argument_that_is_no_size_is_no_shift_that_follows_the_image(tmp_path: Path) -> None:
    found = look(tmp_path, step("steps, positions=self.tokenizer(steps)"), init=LOCAL, before=rising())
    assert found.value("scheduler.direction") == "ascending"
    assert found.fact("scheduler.shift").confidence == "unknown"
    assert found.fact("detail.scheduler.asked").confidence == "unknown"


@pytest.mark.parametrize(
    ("change", "output", "sign"), [(FORWARD, "-v", 1), (BACKWARD, "v", 1), (BACKWARD, "-v", -1), (FORWARD, "v", -1)]
)
def test_sign_of_a_step_that_is_read(tmp_path: Path, change: str, output: str, sign: int) -> None:
    found = look(tmp_path, step(output=output), init=LOCAL, before=rising(change))
    assert found.value("detail.prediction.sign") == sign


def test_a_step_that_is_not_understood_has_no_sign(tmp_path: Path) -> None:
    found = look(tmp_path, step(), init=LOCAL, before=rising("self.gain"))
    assert found.fact("detail.prediction.sign").confidence == "unknown"


def test_a_time_for_each_token_turns_the_step_round(tmp_path: Path) -> None:
    text = step(output="-v").replace("t, x, return", "t, x, per_token_timesteps=cond, return")
    assert look(tmp_path / "a", text, init=DIFFUSERS.format("")).value("detail.prediction.sign") == 1
    assert look(tmp_path / "b", step(output="-v"), init=DIFFUSERS.format("")).value("detail.prediction.sign") == -1


def test_what_is_put_into_the_object_is_kept(tmp_path: Path) -> None:
    init = (
        DIFFUSERS.format("") + '\nself.scheduler.config["use_dynamic_shifting"] = True\nself.scheduler.sigma_min = 0.0'
    )
    made = look(tmp_path, step("steps, mu=0.8"), init=init).value("detail.scheduler.made")
    assert made["assigned"] == {"sigma_min": "0.0"}
    assert made["configured"] == {"use_dynamic_shifting": "True"}


def test_another_call_on_the_object_leaves_the_recipe_unknown(tmp_path: Path) -> None:
    text = "self.scheduler.set_shift(cond)\n" + step()
    found = look(tmp_path, text, init=DIFFUSERS.format(""))
    assert found.fact("detail.scheduler.made").confidence == "unknown"


def test_two_calls_that_nothing_decides_between(tmp_path: Path) -> None:
    text = "if cond:\n    self.scheduler.set_timesteps(steps, mu=0.5)\nelse:\n    self.scheduler.set_timesteps(steps)\n"
    text += step().replace("self.scheduler.set_timesteps(steps)\n", "")
    found = look(tmp_path, text, init=DIFFUSERS.format(""))
    assert found.fact("detail.scheduler.asked").confidence == "unknown"


def test_an_object_that_a_loader_makes(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights=None):
        from diffusers import FlowMatchEulerDiscreteScheduler

        self.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
"""
    found = look(tmp_path, pipeline=written(step(), end=loader))
    assert (found.value("scheduler.direction"), found.value("scheduler.shift")) == ("descending", 3.0)


COUNTED = """
dt = {dt}
for i in range(steps):
    t = {time}
    v = self.net(x, torch.full((1,), t), cond)
    x = x + dt * v
"""


@pytest.mark.parametrize(
    ("dt", "time", "direction", "sign", "text"),
    [
        ("-1.0 / steps", "1.0 + i * dt", "descending", 1, "1.0 + step * (-1.0 / num_inference_steps)"),
        ("1.0 / steps", "i / steps", "ascending", -1, "step / num_inference_steps"),
    ],
)
def test_times_by_the_number_of_the_turn(
    tmp_path: Path, dt: str, time: str, direction: str, sign: int, text: str
) -> None:
    found = look(tmp_path, COUNTED.format(dt=dt, time=time))
    assert (found.value("scheduler.steps"), found.value("scheduler.direction")) == ("n", direction)
    assert found.value("detail.prediction.sign") == sign
    assert found.value("detail.schedule.written") == {"form": "turn", "text": text}


def test_a_time_that_is_carried_along(tmp_path: Path) -> None:
    text = """
    dt = torch.tensor(-1.0 / steps)
    time = torch.tensor(1.0)
    while time >= -dt / 2:
        v = self.net(x, time.expand(1), cond)
        x = x + dt * v
        time = time + dt
    """
    found = look(tmp_path, text)
    assert (found.value("scheduler.steps"), found.value("scheduler.direction")) == ("n", "descending")
    assert found.value("detail.schedule.turn_times") == "1 - i / n, summed"
    assert found.value("detail.prediction.sign") == 1


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
    written = found.value("detail.schedule.written")
    assert written["form"] == "vector"
    grid = "torch.linspace(0, 1, num_inference_steps + 1, dtype=torch.float32)"
    assert written["text"] == f"{grid} + -1.0 * (torch.cos(math.pi / 2 * {grid}) - 1 + {grid})"
    assert found.value("detail.prediction.sign") == -1


@pytest.mark.parametrize(
    ("noise", "rank"),
    [
        ("torch.stack([torch.randn(4, 8, 8), torch.randn(4, 8, 8)])", 4),
        ("torch.randn(1, 4, 8).unsqueeze(0) * 2.0", 4),
        ("torch.cat([self.tokenizer(steps), torch.randn((1, 4, 2, 8, 8))], dim=2)", 5),
        ("torch.randn(*self.tokenizer(steps))", None),
    ],
)
def test_dimensions_of_the_sample(tmp_path: Path, noise: str, rank: int | None) -> None:
    text = f"x = {noise}\n" + step()
    assert look(tmp_path, text, init=DIFFUSERS.format("")).value("detail.scheduler.sample_rank") == rank


SNAPPED = """
from diffusers import FlowMatchEulerDiscreteScheduler


class SnappedScheduler(FlowMatchEulerDiscreteScheduler):
    def __init__(self, bend=3.0):
        super().__init__(shift=1.0)
        self.bend = bend

    def set_timesteps(self, num_inference_steps=20, device=None, bend=None):
        def bent(count):
            return torch.linspace(1, 0.01, count)

        levels = torch.unique_consecutive(bent(1000)[torch.searchsorted(bent(1000), bent(num_inference_steps))])
        super().set_timesteps(device=device, sigmas=levels.tolist())
"""


def test_levels_that_are_handed_to_the_class_of_diffusers_above(tmp_path: Path) -> None:
    found = look(tmp_path, step(output="-v"), init="self.scheduler = SnappedScheduler()", before=SNAPPED)
    assert found.value("detail.scheduler.origin")["kind"] == "source"
    assert found.value("detail.scheduler.levels") == "scheduler.sigmas[:-1]"
    assert found.value("detail.scheduler.asked") == {"num_inference_steps": "num_inference_steps"}
    assert found.value("detail.prediction.sign") == -1
    assert found.fact("scheduler.shift").confidence == "unknown"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sigmas=levels.tolist())", "sigmas=levels.tolist())\n        self.sigmas = self.sigmas.flip(0)"),
        ("sigmas=levels.tolist())", "mu=2.0)"),
        ("        super().set_timesteps(", "        if bend:\n            return\n        super().set_timesteps("),
        ("    def set_timesteps", "    def step(self, a, b, c):\n        return c\n\n    def set_timesteps"),
    ],
)
def test_levels_that_are_not_only_handed_on(tmp_path: Path, old: str, new: str) -> None:
    assert old in SNAPPED
    text = SNAPPED.replace(old, new)
    found = look(tmp_path, step(), init="self.scheduler = SnappedScheduler()", before=text)
    assert found.fact("detail.scheduler.levels").confidence == "unknown"
