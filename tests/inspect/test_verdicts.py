"""Why a pipeline is refused, or left to diffusers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from synthetic import EULER, look

from scaffold.errors import RefusedError
from scaffold.inspect import inspect_pipeline
from scaffold.new import refuse
from scaffold.upstream import locate

LOCAL = "\n\nfrom diffusers.utils.torch_utils import randn_tensor\n"


def test_renoise_written_out(tmp_path: Path) -> None:
    loop = """
    sigmas = torch.linspace(1.0, 0.0, steps + 1)
    for i in range(steps):
        x = x - sigmas[i] * self.net(x, sigmas[i], cond)
        if i + 1 < steps:
            x = (1 - sigmas[i + 1]) * x + sigmas[i + 1] * torch.randn_like(x)
    """
    found = look(tmp_path, loop)
    assert found.verdict["path"] == "refused"
    assert "puts new noise on it" in found.verdict["reason"]
    assert found.fact("verdict.path").evidence[0].file.endswith("made_up/pipeline.py")


def test_renoise_by_the_scheduler(tmp_path: Path) -> None:
    loop = """
    self.scheduler.set_timesteps(steps)
    times = self.scheduler.timesteps
    for i, t in enumerate(times):
        clean = x - t * self.net(x, t, cond)
        x = self.scheduler.add_noise(clean, torch.randn_like(x), times[i + 1]) if i + 1 < len(times) else clean
    """
    init = "from diffusers import FlowMatchEulerDiscreteScheduler\nself.scheduler = FlowMatchEulerDiscreteScheduler()"
    assert look(tmp_path, loop, init=init).verdict["path"] == "refused"


@pytest.mark.parametrize(("flag", "path"), [("True", "refused"), ("False", "non_diffusers")])
def test_scheduler_that_renoises(tmp_path: Path, flag: str, path: str) -> None:
    loop = """
    self.scheduler.set_timesteps(steps)
    for t in self.scheduler.timesteps:
        x = self.scheduler.step(self.net(x, t, cond), t, x).prev_sample
    """
    init = "from diffusers import FlowMatchEulerDiscreteScheduler\n"
    init += f"self.scheduler = FlowMatchEulerDiscreteScheduler(stochastic_sampling={flag})"
    assert look(tmp_path, loop, init=init).verdict["path"] == path


def test_noise_added_to_a_step_is_no_renoise(tmp_path: Path) -> None:
    loop = """
    sigmas = torch.linspace(1.0, 0.0, steps + 1)
    for i in range(steps):
        dt = sigmas[i + 1] - sigmas[i]
        x = x + dt * self.net(x, sigmas[i], cond) + 0.1 * torch.randn_like(x)
    """
    assert look(tmp_path, loop).verdict["path"] == "non_diffusers"


def test_a_step_that_may_renoise_instead(tmp_path: Path) -> None:
    loop = """
    sigmas = torch.linspace(1.0, 0.0, steps + 1)
    for i in range(steps):
        v = self.net(x, sigmas[i], cond)
        if params.extra_args.get("stochastic"):
            x = (1 - sigmas[i + 1]) * (x - sigmas[i] * v) + sigmas[i + 1] * torch.randn_like(x)
        else:
            x = x + (sigmas[i + 1] - sigmas[i]) * v
    """
    assert look(tmp_path, loop).verdict["path"] == "non_diffusers"


def per_token(shape: str) -> str:
    return f"""
    tokens = []
    for position in range(params.extra_args.get("length", 64)):
        x = torch.randn({shape}, generator=params.generator)
        sigmas = torch.linspace(1.0, 0.0, steps + 1)
        for i in range(steps):
            x = x + (sigmas[i + 1] - sigmas[i]) * self.net(x, sigmas[i], cond)
        tokens.append(x)
    """


def test_one_token_at_a_time(tmp_path: Path) -> None:
    found = look(tmp_path / "token", per_token("(1, 8)"))
    assert found.verdict["path"] == "refused"
    assert "per-token" in found.verdict["reason"]
    assert look(tmp_path / "block", per_token("(1, 16, 8)")).verdict["path"] == "non_diffusers"


JOINT = """
y = torch.randn((1, 4, 8), generator=params.generator)
self.video.set_timesteps(steps)
self.audio.set_timesteps(steps)
for t in self.video.timesteps:
    v, w = self.both(x, y, t, cond)
    {step}
"""
BOTH = """

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)

    def forward(self, x, y, t, cond):
        joined = self.proj(torch.cat([x, y], dim=1) + t + cond)
        return joined[:, :16], joined[:, 16:]


class Pair:
    def __init__(self, first, second):
        self.first = first
        self.second = second

    def step(self, outputs, t, samples):
        return self.first.step(outputs[0], t, samples[0])[0], self.second.step(outputs[1], t, samples[1])[0]
"""
TWO = """
from diffusers import FlowMatchEulerDiscreteScheduler

self.both = Both()
self.video = FlowMatchEulerDiscreteScheduler()
self.audio = FlowMatchEulerDiscreteScheduler()
self.pair = Pair(self.video, self.audio)
"""


@pytest.mark.parametrize(
    "step",
    [
        "x, y = self.video.step(v, t, x)[0], self.audio.step(w, t, y)[0]",
        "x, y = self.pair.step((v, w), t, (x, y))",
        "x, y = x + t * v, y + 2 * t * w",
    ],
)
def test_joint_streams(tmp_path: Path, step: str) -> None:
    found = look(tmp_path, JOINT.format(step=step), init=TWO, before=BOTH)
    assert found.verdict["path"] == "refused"
    assert "joint streams: one turn steps x and y" in found.verdict["reason"]


COMPONENT = """
from vllm_omni.diffusion.models.made_up.loader import Source

self.transformer = {name}()
self.weights_sources = [Source(model_or_path=od_config.model, subfolder={folder}, prefix="transformer.")]
"""
LOADER = "class Source:\n    def __init__(self, model_or_path, subfolder=None, prefix=''):\n        pass\n"


@pytest.mark.parametrize(
    ("name", "folder", "path"),
    [
        ("FluxTransformer2DModel", "'transformer'", "diffusers"),
        ("FluxTransformer2DModel", "None", "non_diffusers"),
        ("MadeUpTransformer2DModel", "'transformer'", "non_diffusers"),
    ],
)
def test_component_that_diffusers_loads(tmp_path: Path, name: str, folder: str, path: str) -> None:
    found = look(
        tmp_path, EULER.replace("self.net", "self.transformer"), init=COMPONENT.format(name=name, folder=folder),
        before=f"\n\nclass {name}(Net):\n    pass\n", modules={"loader.py": LOADER},
    )  # fmt: skip
    assert found.verdict["path"] == path
    if path == "diffusers":
        assert "FluxTransformer2DModel" in found.verdict["reason"]


def test_pipeline_that_diffusers_runs(tmp_path: Path) -> None:
    before = "\n\nfrom diffusers import DiffusionPipeline\n"
    init = "self.inner = DiffusionPipeline.from_pretrained(od_config.model)"
    found = look(tmp_path, 'x = self.inner(prompt.get("prompt")).images\n', init=init, before=before)
    assert found.verdict["path"] == "diffusers"
    assert "as a whole" in found.verdict["reason"]


def test_placeholder(tmp_path: Path) -> None:
    before = """

class Elsewhere(nn.Module):
    def denoise(self, net, x, cond, num_steps):
        for i in range(num_steps):
            x = x + (1 / num_steps) * net(x, i / num_steps, cond)
        return x
"""
    found = look(tmp_path, EULER, init='raise NotImplementedError("later")', before=before)
    assert found.verdict["path"] == "refused"
    assert "placeholder" in found.verdict["reason"]


def test_the_release_of_diffusers_that_was_looked_at_is_named(tmp_path: Path) -> None:
    reason = look(tmp_path, EULER).verdict["reason"]
    assert re.match(
        r"diffusers up to [0-9.]+ has neither this pipeline nor the class that its weights are loaded into, ", reason
    )


@pytest.mark.upstream
@pytest.mark.parametrize(("version", "pin"), [("0.27.0rc1", "0.38.0"), ("0.30.0", "0.40.0")])
def test_the_pinned_release_is_named(version: str, pin: str) -> None:
    report = inspect_pipeline(locate(version), "BagelPipeline")
    assert report.verdict["reason"].startswith(f"diffusers {pin}, which this version pins, has neither this pipeline ")
    assert any(place.file.endswith("METADATA") for place in report.fact("verdict.reason").evidence)
    assert report.value("detail.verdict.later") is None


@pytest.mark.upstream
def test_a_later_release_that_has_the_model_is_named() -> None:
    report = inspect_pipeline(locate("0.32.0rc1"), "QwenImage21Pipeline")
    said = "diffusers 0.42.1 has the model QwenImage21Transformer2DModel"
    assert report.verdict["path"] == "non_diffusers"
    assert report.verdict["reason"].count(said) == 1
    assert report.value("detail.verdict.later").startswith(said)


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("version", "pipeline", "said"),
    [
        ("0.30.0", "AnimaPipeline", "diffusers 0.40.0 has AnimaModularPipeline, which may be AnimaPipeline under"),
        (
            "0.28.0",
            "SanaWmPipeline",
            "diffusers 0.42.1 has SanaWMTransformer3DModel, which may be SanaWmTransformer3DModel under another"
            " spelling, but this version pins 0.40.0",
        ),
    ],
)
def test_a_model_that_diffusers_spells_otherwise_is_named(version: str, pipeline: str, said: str) -> None:
    report = inspect_pipeline(locate(version), pipeline)
    assert report.verdict["path"] == "non_diffusers"
    assert said in report.verdict["reason"]
    assert report.value("detail.verdict.later").startswith(said)


@pytest.mark.parametrize(
    ("loop", "init", "before"),
    [
        (JOINT.format(step="x, y = self.video.step(v, t, x)[0], self.audio.step(w, t, y)[0]"), TWO, BOTH),
        ("x = x - self.net(x, 1.0, cond)\n", "", ""),
    ],
    ids=["joint streams", "no loop"],
)
def test_what_diffusers_could_load_instead_says_which_release_cannot(
    tmp_path: Path, loop: str, init: str, before: str
) -> None:
    verdict = look(tmp_path, loop, **({"init": init, "before": before} if init else {})).verdict
    assert verdict["path"] == "refused"
    assert re.search(r"; diffusers up to [0-9.]+ has neither this pipeline nor the class", verdict["reason"])


def test_a_pin_that_was_not_looked_at_is_named_where_diffusers_has_the_model(tmp_path: Path) -> None:
    look(
        tmp_path, EULER.replace("self.net", "self.transformer"),
        init=COMPONENT.format(name="FluxTransformer2DModel", folder="'transformer'"),
        before="\n\nclass FluxTransformer2DModel(Net):\n    pass\n", modules={"loader.py": LOADER},
    )  # fmt: skip
    info = tmp_path / "vllm_omni-9.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nRequires-Dist: diffusers==0.39.0\n")
    verdict = inspect_pipeline(locate(str(tmp_path)), "MadeUpPipeline").verdict
    assert verdict["path"] == "diffusers"
    assert "(this version pins 0.39.0, which was not looked at) has the model" in verdict["reason"]


@pytest.mark.parametrize(
    ("init", "what"), [("raise NotImplementedError", "cannot be trained"), ("", "is not supported here")]
)
def test_only_what_nobody_could_train_is_said_to_be_so(tmp_path: Path, init: str, what: str) -> None:
    loop = """
    for i in range(steps):
        x = x - 0.1 * self.net(x, i, cond)
        x = (1 - 0.1) * x + 0.1 * torch.randn_like(x)
    """
    report = look(tmp_path, loop, init=init) if init else look(tmp_path, loop)
    assert report.verdict["path"] == "refused"
    with pytest.raises(RefusedError, match=f"MadeUpPipeline of vllm-omni .*{what}"):
        refuse(report)


@pytest.mark.parametrize("changed", ["x.clamp(-4, 4)", "keep * x + (1 - keep) * given", "x * 0.99", "x"])
def test_a_sample_that_is_changed_after_its_update_is_refused_with_the_place(tmp_path: Path, changed: str) -> None:
    loop = f"""
    given, keep = torch.zeros_like(x), torch.ones_like(x)
    sigmas = torch.linspace(1, 0, steps + 1)
    for i in range(steps):
        v = self.net(x, sigmas[i], cond)
        x = x + (sigmas[i + 1] - sigmas[i]) * v
        x = {changed}
    """
    verdict = look(tmp_path, loop).verdict
    assert verdict["path"] == ("non_diffusers" if changed == "x" else "refused")
    assert ("after its update the loop changes the sample once more" in verdict["reason"]) is (changed != "x")
