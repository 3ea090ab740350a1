"""Which run of a loop is described, what a turn steps, and what comes out of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import look

STAGES = """
x = self.sample(x, cond, steps, params.extra_args.get("strength", 4.0))
x = self.sample(x, cond, 3, 1.0)
"""
SAMPLE = """

class Sampler(nn.Module):
    def sample(self, x, cond, steps, scale):
        sigmas = torch.linspace(1.0, 0.0, steps + 1)
        for i in range(steps):
            u = self.net(x, sigmas[i], None)
            v = u + scale * (self.net(x, sigmas[i], cond) - u)
            x = x + (sigmas[i + 1] - sigmas[i]) * v
        return x
"""


def test_the_first_of_two_stages(tmp_path: Path) -> None:
    found = look(tmp_path, STAGES, before=SAMPLE, bases="Sampler")
    assert found.value("cfg.scales") == {"strength": 4.0}
    assert found.value("scheduler.steps") == "n"


def test_frames_that_are_not_stepped(tmp_path: Path) -> None:
    loop = """
    self.scheduler.set_timesteps(steps)
    for t in self.scheduler.timesteps:
        v = self.net(x, t, cond)
        after = self.scheduler.step(v[:, :, 1:], t, x[:, :, 1:], return_dict=False)[0]
        x = torch.cat([x[:, :, :1], after], dim=2)
    """
    init = "from diffusers import FlowMatchEulerDiscreteScheduler\nself.scheduler = FlowMatchEulerDiscreteScheduler()"
    found = look(tmp_path, loop, init=init)
    assert found.value("scheduler.arguments") == ["model_output", "timestep", "sample", "return_dict"]
    assert found.value("denoiser.class") == "Net"


LISTED = """
kept = []
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    x = x + (sigmas[i + 1] - sigmas[i]) * self.net(x, sigmas[i], cond)
    kept.append(x)
x = {result}
"""


@pytest.mark.parametrize(("result", "recorded"), [("torch.stack(kept)", True), ("kept[-1]", False), ("kept[0]", False)])
def test_the_last_turn_alone_is_no_record(tmp_path: Path, result: str, recorded: bool) -> None:
    assert look(tmp_path, LISTED.format(result=result)).value("trajectory.recorded") is recorded


def test_a_model_of_the_sample_repeated(tmp_path: Path) -> None:
    loop = """
    copies = 2 if params.guidance_scale > 1 else 1
    sigmas = torch.linspace(1.0, 0.0, steps + 1)
    for i in range(steps):
        v = self.net(torch.cat([x] * copies), sigmas[i], cond)
        s = self.score(v, x, sigmas[i])
        x = x + (sigmas[i + 1] - sigmas[i]) * (v + s)
    """
    before = "\n\nclass Scored(nn.Module):\n    def score(self, v, x, t):\n        return (t * v - x) / (1 - t)\n"
    found = look(tmp_path, loop, before=before, bases="Scored")
    assert (found.value("denoiser.class"), found.value("denoiser.method")) == ("Net", "forward")
    # A velocity scaled by the time is not a prediction of the clean sample, though the sample is taken off it.
    assert found.value("detail.denoiser.predicts_clean") is False


SIGNED = """
none = self.encode("")
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    c, u = {both}
    v = u + params.guidance_scale * (c - u)
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""


@pytest.mark.parametrize(
    ("both", "negated"),
    [
        ("(-self.net(torch.cat([x, x]), sigmas[i], cond)).chunk(2)", True),
        ("self.net(torch.cat([x, x]), sigmas[i], cond).chunk(2)", False),
        ("-self.net(x, sigmas[i], cond), -self.net(x, sigmas[i], none)", True),
        ("-self.net(x, sigmas[i], cond), self.net(x, sigmas[i], none)", None),
    ],
)
def test_sign_of_guided_predictions(tmp_path: Path, both: str, negated: bool | None) -> None:
    assert look(tmp_path, SIGNED.format(both=both)).value("scheduler.negated") is negated


CLEAN = """
none = self.encode("")
sigmas = torch.linspace(1.0, 0.01, steps + 1)
for i in range(steps):
    c, u = {both}
    c, u = x - sigmas[i] * c, x - sigmas[i] * u
    clean = u + params.guidance_scale * (c - u)
    v = (x - clean) / sigmas[i]
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""


@pytest.mark.parametrize(
    ("both", "execution"),
    [
        ("self.net(torch.cat([x, x]), sigmas[i], cond).chunk(2)", "batched"),
        ("self.net(x, sigmas[i], cond), self.net(x, sigmas[i], none)", "sequential"),
    ],
)
def test_guidance_between_clean_samples(tmp_path: Path, both: str, execution: str) -> None:
    found = look(tmp_path, CLEAN.format(both=both))
    assert found.value("cfg.execution") == execution
    assert found.value("detail.denoiser.predicts_clean") is False


BOUNDS = """
none = self.encode("")
bounds = {bounds}
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    u = self.net(x, sigmas[i], none)
    scale = params.guidance_scale
    if bounds is not None:
        scale = scale if bounds[0] <= sigmas[i] <= bounds[1] else 1.0
    v = u + scale * (self.net(x, sigmas[i], cond) - u)
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""


@pytest.mark.parametrize(
    ("bounds", "interval", "known"),
    [
        ("(0.2, 0.8)", [0.2, 0.8], True),
        ("(0.2, 0.8) if prompt.get('still') else None", None, True),
        ("(0.2, 0.8) if self.tokenizer.still else None", None, False),
    ],
)
def test_interval_that_some_requests_have(tmp_path: Path, bounds: str, interval: object, known: bool) -> None:
    found = look(tmp_path, BOUNDS.format(bounds=bounds)).fact("cfg.interval")
    assert (found.value, found.confidence != "unknown") == (interval, known)


@pytest.mark.parametrize(
    "put", ["params.guidance_scale = 1.5\n", "params.seed = 3\n"], ids=["the scale", "something else"]
)
def test_scale_of_the_pipeline_alone(tmp_path: Path, put: str) -> None:
    loop = put + SIGNED.format(both="self.net(x, sigmas[i], cond), self.net(x, sigmas[i], none)")
    found = look(tmp_path, loop)
    known = "seed" in put
    assert (found.value("cfg.branches"), found.value("cfg.execution")) == ((2, "sequential") if known else (None, None))


FED = """
none = self.encode("")
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    v = {called}
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""
DERIVED = """

from transformers import LlamaModel


class Estimator(LlamaModel):
    def forward(self, x, t, cond):
        return super().forward(inputs_embeds=x + t + cond)[0]


class Sequence(nn.Module):
    def forward(self, parts, t, cond):
        return parts[0] + t
"""


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("self.estimator(x, sigmas[i], cond)", "Estimator"),
        ("self.sequence([x], sigmas[i], cond)", "Sequence"),
        ("self.sequence([x / (1 + sigmas[i])], torch.atan(sigmas[i]) * 2, cond)", "Sequence"),
    ],
)
def test_what_the_sample_and_its_time_are_given_to(tmp_path: Path, called: str, name: str) -> None:
    init = "self.estimator = Estimator(None)\nself.sequence = Sequence()"
    found = look(tmp_path, FED.format(called=called), init=init, before=DERIVED)
    assert (found.value("denoiser.class"), found.value("denoiser.method")) == (name, "forward")


def test_a_prediction_without_its_last_entries(tmp_path: Path) -> None:
    found = look(tmp_path, FED.format(called="self.net(torch.cat([x, none], 1), sigmas[i], cond)[:, : x.size(1)]"))
    assert (found.value("cfg.branches"), found.value("cfg.execution")) == (1, "none")
