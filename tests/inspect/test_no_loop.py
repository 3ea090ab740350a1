"""What is not a denoising loop, what may be one, and turns that step two samples."""

from __future__ import annotations

from pathlib import Path

from synthetic import EULER, HEAD, NET, PIPELINE, look

NO_LOOP = "x = x - self.net(x, 1.0, cond)\n"


def test_a_sum_of_sizes_is_no_sample(tmp_path: Path) -> None:
    loop = """
total = 0
for window in self.net.windows(x):
    total = total + self.net.size(window, total) * window.stop
"""
    found = look(tmp_path, loop + NO_LOOP)
    assert found.value("verdict.path") == "refused"
    assert found.value("verdict.reason").startswith("no denoising loop")
    assert (found.value("scheduler.inline"), found.value("trajectory.recorded")) == (None, None)


CELL = """

class Cell:
    def __init__(self, net):
        self.net = net
        self.live = {}

    def forward(self, tasks, cond):
        for name, time in tasks:
            self.live[name] = self.advance(self.net(self.live[name], time, cond), self.live[name])

    def advance(self, prediction, latent):
        return latent + 0.25 * prediction


def run(cell, queue, cond):
    while queue.waiting:
        cell.forward(queue.tasks(), cond)
"""


def test_loop_of_a_helper_that_calls_the_model(tmp_path: Path) -> None:
    loop = "cell = Cell(self.net)\nrun(cell, self.tokenizer.queue(x), cond)\nx = cell.live['out']\n"
    found = look(tmp_path, loop, before=CELL)
    assert (found.fact("verdict.path").value, found.fact("verdict.path").confidence) == ("non_diffusers", "likely")


RUNNER = """
import torch


class Runner:
    def denoise(self, x, timesteps, cond):
        for t in timesteps:
            x = x + (t - 0.25) * self.net(x, t, cond)
        return x

    def decode(self, x):
        return self.vae.decode(x)
"""


def test_loop_to_which_no_method_leads(tmp_path: Path) -> None:
    head = HEAD + NET + "\nfrom vllm_omni.diffusion.models.made_up.runner import Runner\n"
    shape = PIPELINE.format(name="MadeUpPipeline", bases="nn.Module", init="        pass", loop="{loop}")
    for place, call, path in (("decode", "decode", "refused"), ("denoise", "denoise", "non_diffusers")):
        text = head + shape.replace("{loop}", f"        x = self.tokenizer.made().{call}(x)\n")
        found = look(tmp_path / place, pipeline=text, modules={"runner.py": RUNNER})
        assert found.value("verdict.path") == path, place


def test_borrowed_methods_lead_to_themselves_alone(tmp_path: Path) -> None:
    head = HEAD + NET + "\nfrom vllm_omni.diffusion.models.made_up.runner import Runner\n"
    shape = PIPELINE.format(
        name="MadeUpPipeline", bases="nn.Module", init="        pass", loop="        x = self.decode(x)"
    )
    text = head + shape.replace(
        "(nn.Module):\n    def __init__", "(nn.Module):\n    decode = Runner.decode\n\n    def __init__"
    )
    assert "decode = Runner.decode" in text
    found = look(tmp_path, pipeline=text, modules={"runner.py": RUNNER})
    assert (found.value("verdict.path"), found.fact("verdict.path").confidence) == ("refused", "certain")


TWO = """
self.scheduler.set_timesteps(steps)
sound = torch.randn((1, 4, 8))
both = params.extra_args.get("both", True)
for i, t in enumerate(self.scheduler.timesteps):
    made = self.net.of(x, sound, t, cond)
    if isinstance(made, tuple):
        moving, heard = made
        x = self.scheduler.step(moving, t, x, return_dict=False)[0]
        if both:
            sound = sound + (self.scheduler.sigmas[i + 1] - self.scheduler.sigmas[i]) * heard
    elif self.net.pictures:
        x = self.scheduler.step(made, t, x, return_dict=False)[0]
    else:
        sound = self.scheduler.step(made, t, sound, return_dict=False)[0]
"""
HELD = "from diffusers import FlowMatchEulerDiscreteScheduler\nself.scheduler = FlowMatchEulerDiscreteScheduler()"


def test_two_samples_one_stepped_and_one_updated(tmp_path: Path) -> None:
    found = look(tmp_path, TWO, init=HELD)
    assert found.value("verdict.path") == "refused"
    assert found.value("verdict.reason").startswith("joint streams: one turn steps x and sound")


KEPT = """
self.scheduler.set_timesteps(steps)
state = self.tokenizer.state(x, torch.randn((1, 4, 8)))
for t in self.scheduler.timesteps:
    moving, heard = self.net.of(state.x, state.sound, t, cond)
    state.x = self.scheduler.step(moving, t, state.x, return_dict=False)[0]
    state.sound = self.scheduler.step(heard, t, {sample}, return_dict=False)[0]
"""


def test_two_samples_that_an_object_keeps(tmp_path: Path) -> None:
    found = look(tmp_path, KEPT.format(sample="state.sound"), init=HELD)
    assert found.value("verdict.reason").startswith("joint streams")


def test_one_loop_is_enough(tmp_path: Path) -> None:
    assert look(tmp_path, EULER).value("verdict.path") == "non_diffusers"


SOLVER = """

class Solver:
    def __init__(self, levels):
        self.levels = levels

    def step(self, state, velocity, number):
        now, after = self.levels[number], self.levels[number + 1]
        return state + (after - now) * velocity
"""


def test_update_in_the_step_of_an_object_is_not_written_in_the_loop(tmp_path: Path) -> None:
    loop = """
sigmas = torch.linspace(1.0, 0.0, steps + 1)
solver = Solver(sigmas)
for i in range(steps):
    v = self.net(x, sigmas[i], cond)
    x = solver.step(x, v, i)
"""
    found = look(tmp_path, loop, before=SOLVER)
    assert found.value("verdict.path") == "non_diffusers"
    assert (found.value("scheduler.inline"), found.value("scheduler.arguments")) == (None, None)
    assert look(tmp_path / "written", EULER).value("scheduler.inline") is True
