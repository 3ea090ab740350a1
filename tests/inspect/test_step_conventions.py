"""Where the loop stands, which scheduler it asks, and how it takes a step."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, HEAD, SIGMAS, look

DIFFUSERS = "from diffusers import FlowMatchEulerDiscreteScheduler\nself.scheduler = FlowMatchEulerDiscreteScheduler()"
STEP = """
self.scheduler.set_timesteps(steps)
for t in self.scheduler.timesteps:
    v = self.net(x, t, cond)
    {step}
"""


def step(text: str) -> str:
    return STEP.format(step=text)


def test_loop_in_a_parent_class_of_another_module(tmp_path: Path) -> None:
    base = (
        HEAD
        + """
class Sampler(nn.Module):
    def sample(self, net, x, cond, steps):
        sigmas = torch.linspace(1.0, 0.0, steps + 1)
        for i in range(steps):
            x = x + (sigmas[i + 1] - sigmas[i]) * net(x, sigmas[i], cond)
        return x
"""
    )
    found = look(
        tmp_path,
        "x = self.sample(self.net, x, cond, steps)\n",
        bases="Sampler",
        before="\n\nfrom .sampler import Sampler\n",
        modules={"sampler.py": base},
    )
    assert found.verdict["path"] == "non_diffusers"
    assert found.value("denoiser.class") == "Net"
    assert (found.value("scheduler.inline"), found.value("scheduler.direction")) == (True, "descending")
    assert found.fact("detail.scheduler.loop_location").value == "vllm_omni/diffusion/models/made_up/sampler.py:13"


def test_loop_in_an_inner_object(tmp_path: Path) -> None:
    inner = """

class Inner:
    def __init__(self, net):
        self.net = net

    def run(self, x, cond, steps):
        sigmas = torch.linspace(1.0, 0.0, steps + 1)
        for now, after in zip(sigmas[:-1], sigmas[1:]):
            x = x + (after - now) * self.net(x, now, cond)
        return x
"""
    found = look(tmp_path, "x = self.inner.run(x, cond, steps)\n", init="self.inner = Inner(self.net)", before=inner)
    assert found.value("denoiser.class") == "Net"
    assert (found.value("scheduler.steps"), found.value("scheduler.direction")) == ("n", "descending")


def test_class_attribute_of_a_subclass_wins(tmp_path: Path) -> None:
    base = "\n\nclass Base(nn.Module):\n    SHIFT = 3.0\n\n    def shifted(self, s):\n"
    base += "        return self.SHIFT * s / (1 + (self.SHIFT - 1) * s)\n"
    middle = "\n\nclass Middle(Base):\n    SHIFT = 5.0\n\n\nclass Other(Base):\n    pass\n"
    loop = EULER.replace("torch.linspace(1.0, 0.0, steps + 1)", "self.shifted(torch.linspace(1.0, 0.0, steps + 1))")
    assert look(tmp_path / "a", loop, bases="Other, Middle", before=base + middle).value("scheduler.shift") == 5.0
    assert look(tmp_path / "b", loop, bases="Other", before=base + middle).value("scheduler.shift") == 3.0


def test_scheduler_of_a_mixin(tmp_path: Path) -> None:
    mixin = """

class Stepping:
    def make_scheduler(self):
        from diffusers import UniPCMultistepScheduler

        self.scheduler = UniPCMultistepScheduler()

    def advance(self, v, t, x):
        return self.scheduler.step(v, t, x, return_dict=False)[0]
"""
    found = look(
        tmp_path, step("x = self.advance(v, t, x)"), bases="Stepping, nn.Module", init="self.make_scheduler()",
        before=mixin,
    )  # fmt: skip
    assert found.value("scheduler.class") == "UniPCMultistepScheduler"
    assert found.value("scheduler.call") == "scheduler.step"
    assert found.value("scheduler.arguments") == ["model_output", "timestep", "sample", "return_dict"]


def test_scheduler_of_diffusers(tmp_path: Path) -> None:
    found = look(tmp_path, step("x = self.scheduler.step(v, t, x).prev_sample"), init=DIFFUSERS)
    assert found.value("scheduler.class") == "FlowMatchEulerDiscreteScheduler"
    assert found.value("scheduler.steps") == "n"


@pytest.mark.parametrize(
    ("grid", "direction"),
    [("torch.linspace(0.0, 1.0, n + 1)[:-1]", "ascending"), ("torch.linspace(1.0, 0.0, n + 1)[:-1]", "descending")],
)
def test_local_class_of_a_known_name(tmp_path: Path, grid: str, direction: str) -> None:
    local = f"""

class FlowMatchEulerDiscreteScheduler:
    def set_timesteps(self, n):
        self.timesteps = {grid}

    def step(self, v, t, x):
        return (x + v / len(self.timesteps),)
"""
    found = look(
        tmp_path, step("x = self.scheduler.step(v, t, x)[0]"),
        init="self.scheduler = FlowMatchEulerDiscreteScheduler()", before=local,
    )  # fmt: skip
    assert found.value("scheduler.direction") == direction
    assert found.value("scheduler.steps") == "n"
    assert found.value("scheduler.class") == "FlowMatchEulerDiscreteScheduler"


def test_multistep_solver_of_the_source(tmp_path: Path) -> None:
    solver = """

class Solver:
    def __init__(self, order=2):
        self.order = order
        self.outputs = []

    def set_timesteps(self, n):
        self.timesteps = torch.linspace(1000.0, 0.0, n + 1)[:-1]

    def step(self, v, t, x, return_dict=True):
        self.outputs.append(v)
        return (x - self.outputs[-1],)
"""
    found = look(
        tmp_path, step("x = self.scheduler.step(-v, t, x, return_dict=False)[0]"), init="self.scheduler = Solver()",
        before=solver,
    )  # fmt: skip
    assert found.value("scheduler.class") == "Solver"
    assert (found.value("scheduler.negated"), found.value("scheduler.inline")) == (True, False)


def test_inline_rising(tmp_path: Path) -> None:
    loop = """
    times = torch.linspace(0.0, 1.0, steps + 1)
    for i in range(steps):
        x = x + (times[i + 1] - times[i]) * self.net(x, times[i], cond)
    """
    found = look(tmp_path, loop)
    assert (found.value("scheduler.inline"), found.value("scheduler.direction")) == (True, "ascending")
    assert (found.value("scheduler.class"), found.value("scheduler.arguments")) == (None, [])


def test_inline_with_a_carried_time(tmp_path: Path) -> None:
    loop = """
    t, dt = 1.0, -1.0 / steps
    while t > -dt / 2:
        v = self.net(x, t, cond)
        x = x + dt * v
        t = t + dt
    """
    found = look(tmp_path, loop)
    assert found.verdict["path"] == "non_diffusers"
    assert found.value("scheduler.inline") is True


def test_layers_of_a_network_are_no_denoising(tmp_path: Path) -> None:
    loop = """
    for layer in self.layers:
        x = x + layer(x, cond)
    """
    found = look(tmp_path, loop, init="self.layers = nn.ModuleList([Net() for _ in range(od_config.depth)])")
    assert found.verdict["path"] == "refused"
    assert "no denoising loop" in found.verdict["reason"]


def test_a_scheduler_that_is_fed_shifted_levels_has_no_shift_of_its_own(tmp_path: Path) -> None:
    loop = """
    sigmas = torch.linspace(1.0, 1.0 / steps, steps)
    sigmas = 3.0 * sigmas / (1.0 + 2.0 * sigmas)
    self.scheduler.set_timesteps(sigmas=sigmas.tolist())
    for t in self.scheduler.timesteps:
        v = self.net(x, t, cond)
        x = self.scheduler.step(v, t, x).prev_sample
    """
    found = look(tmp_path, loop, init=DIFFUSERS.replace("Scheduler()", "Scheduler(shift=1.0)")).fact("scheduler.shift")
    assert (found.value, found.confidence) != (1.0, "certain")


@pytest.mark.parametrize("written", ["-v", "v * -1", "-1.0 * v"])
def test_negated_output(tmp_path: Path, written: str) -> None:
    found = look(tmp_path, step(f"x = self.scheduler.step({written}, t, x).prev_sample"), init=DIFFUSERS)
    assert found.value("scheduler.negated") is True


@pytest.mark.parametrize(
    ("velocity", "expected"),
    [
        ("(clean - x) / (1.0 - times[i])", True),
        ("(clean - x) / (1.0 - times[i]).clamp(min=0.05)", True),
        ("clean", False),
        ("((x + (1.0 - times[i]) * clean) - x) / (1.0 - times[i])", False),  # a velocity, by way of the clean sample
    ],
)
def test_prediction_of_the_clean_sample(tmp_path: Path, velocity: str, expected: bool) -> None:
    loop = f"""
    times = torch.linspace(0.0, 1.0, steps + 1)
    for i in range(steps):
        clean = self.net(x, times[i], cond)
        v = {velocity}
        x = x + (times[i + 1] - times[i]) * v
    """
    found = look(tmp_path, loop).fact("detail.denoiser.predicts_clean")
    assert (found.value, found.confidence) == (expected, "certain")


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("self.scheduler.step(v, t, x).prev_sample", ["model_output", "timestep", "sample"]),
        ("self.scheduler.step(v, t, x)[0]", ["model_output", "timestep", "sample"]),
        ("self.scheduler.step(v, t, x, params.generator)[0]", ["model_output", "timestep", "sample", "generator"]),
        (
            "self.scheduler.step(model_output=v, sample=x, timestep=t).prev_sample",
            ["model_output", "sample", "timestep"],
        ),
        ("self.scheduler.step(t, x, v)[0]", ["timestep", "sample", "model_output"]),
    ],
)
def test_arguments_and_result_of_a_step(tmp_path: Path, call: str, arguments: list[str]) -> None:
    found = look(tmp_path, step(f"x = {call}"), init=DIFFUSERS)
    assert found.value("scheduler.arguments") == arguments
    assert found.value("scheduler.inline") is False


def test_dt_as_fourth_argument(tmp_path: Path) -> None:
    loop = (
        SIGMAS
        + """
dts = sigmas[:-1] - sigmas[1:]
for i in range(steps):
    v = self.net(x, sigmas[i], cond)
    x = self.scheduler.step(v, sigmas[i], x, dts[i]).prev_sample
"""
    )
    found = look(tmp_path, loop, init="self.scheduler = None")
    assert found.value("scheduler.arguments") == ["model_output", "timestep", "sample", "dt"]
    assert found.fact("scheduler.class").value is None
    assert found.fact("scheduler.class").confidence == "certain"


def test_keyword_only_step_of_the_source(tmp_path: Path) -> None:
    local = """

class Stepper:
    def set_timesteps(self, n):
        self.timesteps = torch.linspace(1.0, 0.0, n + 1)[:-1]

    def step(self, *, model_output, timestep, sample):
        return sample - model_output
"""
    found = look(
        tmp_path, step("x = self.scheduler.step(model_output=v, timestep=t, sample=x)"),
        init="self.scheduler = Stepper()", before=local,
    )  # fmt: skip
    assert found.value("scheduler.arguments") == ["model_output", "timestep", "sample"]
    assert found.value("detail.scheduler.keywords") == ["model_output", "timestep", "sample"]


def test_constants_in_a_dataclass(tmp_path: Path) -> None:
    constants = """

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    steps: int = 30
    shift: float = 4.0


CONSTANTS = Constants()
"""
    loop = """
    steps = params.num_inference_steps or CONSTANTS.steps
    s = torch.linspace(1.0, 0.0, steps + 1)
    sigmas = CONSTANTS.shift * s / (1 + (CONSTANTS.shift - 1) * s)
    for i in range(steps):
        x = x + (sigmas[i + 1] - sigmas[i]) * self.net(x, sigmas[i], cond)
    """
    found = look(tmp_path, loop, before=constants)
    assert found.fact("scheduler.shift").value == 4.0
    assert found.fact("scheduler.shift").confidence == "certain"
    assert found.value("detail.scheduler.default_steps") == 30


def test_time_from_the_number_of_the_turn(tmp_path: Path) -> None:
    loop = """
    for i in range(steps):
        t = torch.full((x.shape[0],), fill_value=(i + 0.5) / steps)
        x = x + self.net(x, t, cond) / steps
    """
    found = look(tmp_path, loop)
    assert (found.value("denoiser.class"), found.value("denoiser.method")) == ("Net", "forward")
    assert found.value("scheduler.steps") == "n"
