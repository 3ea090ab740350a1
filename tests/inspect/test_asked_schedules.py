"""How many turns a schedule has: helpers of diffusers that ask for it, settings that are not a request's, defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, look

HELD = "from diffusers import FlowMatchEulerDiscreteScheduler\n"
HELD += "self.scheduler = FlowMatchEulerDiscreteScheduler.from_pretrained(od_config.model)"
RETRIEVE = """
from diffusers.pipelines.flux.pipeline_flux import retrieve_timesteps
{before}
times, steps = retrieve_timesteps({given})
for t in times:
    x = self.scheduler.step(self.net(x, t, cond), t, x, return_dict=False)[0]
"""


@pytest.mark.parametrize(
    ("given", "before", "steps"),
    [
        ("self.scheduler, steps, 'cuda'", "", "n"),
        ("self.scheduler, steps, sigmas=sigmas, mu=1.0", "sigmas = torch.linspace(1.0, 0.1, steps)", "n"),
        ("self.scheduler, steps, sigmas=sigmas", "sigmas = torch.linspace(1.0, 0.1, steps + 1)", "n+1"),
        ("self.scheduler, timesteps=own", "own = torch.linspace(1000.0, 1.0, steps + 1)[:-1].astype('int64')", "n"),
        ("self.scheduler, 8", "", None),
    ],
)
def test_schedule_that_a_helper_asks_for(tmp_path: Path, given: str, before: str, steps: str | None) -> None:
    found = look(tmp_path, RETRIEVE.format(given=given, before=before), init=HELD)
    assert found.value("scheduler.steps") == steps
    assert found.value("scheduler.call") == "scheduler.step"


def test_default_number_of_steps(tmp_path: Path) -> None:
    before = "steps = params.num_inference_steps or 28"
    loop = RETRIEVE.format(given="self.scheduler, steps", before=before)
    assert look(tmp_path, loop, init=HELD).value("detail.scheduler.default_steps") == 28


def test_two_defaults_are_none(tmp_path: Path) -> None:
    before = "steps = params.num_inference_steps or (28 if self.tokenizer.is_large else 50)"
    loop = RETRIEVE.format(given="self.scheduler, steps", before=before)
    assert look(tmp_path, loop, init=HELD).value("detail.scheduler.default_steps") is None


EXTRA = """
import inspect
taken = inspect.signature(self.scheduler.step).parameters.keys()
extra = {}
if "eta" in taken:
    extra["eta"] = 0.0
if "generator" in taken:
    extra["generator"] = params.generator
self.scheduler.set_timesteps(steps)
for t in self.scheduler.timesteps:
    x = self.scheduler.step(self.net(x, t, cond), t, x, **extra)[0]
"""


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("DDIMScheduler", ["eta", "generator"]),
        ("DPMSolverMultistepScheduler", ["generator"]),
        ("UniPCMultistepScheduler", []),
    ],
)
def test_arguments_that_a_scheduler_takes(tmp_path: Path, name: str, more: list[str]) -> None:
    init = f"from diffusers import {name}\nself.scheduler = {name}()"
    found = look(tmp_path, EXTRA, init=init)
    assert found.value("scheduler.arguments") == ["model_output", "timestep", "sample", *more]


def test_what_an_object_lacks_is_asked_of_the_one_it_holds(tmp_path: Path) -> None:
    before = """

class Wrapped:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)
"""
    loop = """
    self.scheduler.set_timesteps(steps)
    for t in self.scheduler.timesteps:
        x = self.scheduler.step(self.net(x, t, cond), t, x)[0]
    """
    init = "from diffusers import FlowMatchEulerDiscreteScheduler\n"
    init += "self.scheduler = Wrapped(FlowMatchEulerDiscreteScheduler())"
    found = look(tmp_path, loop, init=init, before=before)
    assert found.value("scheduler.steps") == "n"


def test_option_that_a_constructor_replaces(tmp_path: Path) -> None:
    before = """

from dataclasses import replace


class Local:
    def __init__(self, shift=1.0):
        self.shift = shift

    def set_timesteps(self, num_inference_steps):
        t = torch.linspace(1.0, 0.0, num_inference_steps + 1)[:-1]
        self.timesteps = self.shift * t / (1 + (self.shift - 1) * t)

    def step(self, model_output, timestep, sample):
        return sample + (self.next - timestep) * model_output
"""
    init = "od_config = replace(od_config, bend=3.0)\nself.scheduler = Local(shift=od_config.bend)"
    loop = """
    self.scheduler.set_timesteps(steps)
    for t in self.scheduler.timesteps:
        x = self.scheduler.step(self.net(x, t, cond), t, x)
    """
    assert look(tmp_path, loop, init=init, before=before).value("scheduler.shift") == 3.0


def test_frames_that_every_request_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import synthetic

    fields = "    guidance_scale: float = 0.0\n"
    request = synthetic.REQUEST.replace(fields, fields + "    num_frames: int = 1\n    height: int | None = None\n")
    monkeypatch.setattr(synthetic, "REQUEST", request)
    before = "cond = cond + self.net.size(params.num_frames, params.height or 480)\n"
    found = look(tmp_path, before + EULER).value("detail.request.sizes")
    assert (found["num_frames"], found["height"]) == (None, 480)


def test_a_time_that_is_given_twice(tmp_path: Path) -> None:
    loop = """
    self.scheduler.set_timesteps(steps)
    for t in self.scheduler.timesteps:
        x = self.scheduler.step(self.net(x, t, cond), t, x, per_token_timesteps=t.expand(16))[0]
    """
    found = look(tmp_path, loop, init=HELD)
    assert found.value("scheduler.arguments") == ["model_output", "timestep", "sample", "per_token_timesteps"]
