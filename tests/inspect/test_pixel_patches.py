"""A pipeline that denoises patches of pixels with one decoder: every convention is read from its source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from altered import Copy

from scaffold.inspect import Report, inspect_pipeline
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
VERSION = "0.30.0"
FOLDER = "vllm_omni/diffusion/models/hidream_o1_image"
PIPELINE = f"{FOLDER}/pipeline_hidream_o1_image.py"
MODEL = f"{FOLDER}/hidream_o1_image_transformer.py"
SCHEDULER = "vllm_omni/diffusion/models/schedulers/scheduling_flow_unipc_multistep.py"

FACTS = {
    "answers.scheduler.steps": "n",
    "answers.scheduler.direction": "descending",
    "answers.scheduler.shift": 3.0,
    "answers.scheduler.negated": True,
    "detail.schedule.kind": "truncated",
    "detail.schedule.parts": 1000,
    "detail.schedule.start_level": 0.999,
    "detail.time.denoiser": "1 - sigma",
    "detail.time.step": "1000 sigma",
    "detail.denoiser.predicts_clean": True,
    "detail.prediction.floor": 0.001,
    "detail.latents.noise_scale": 8.0,
    "detail.patches.layout": "(h w) (c p q) -> c (h p) (w q)",
    "detail.patches.side": 32,
    "detail.patches.channels": 3,
    "detail.patches.rank": 3,
    "detail.image.sizes_constant": "PREDEFINED_RESOLUTIONS",
    "detail.timestep_token.id": 151673,
    "detail.timestep.scale": 1000.0,
    "detail.timestep.order": ["cos", "sin"],
    "detail.timestep.max_period": 10000.0,
    "detail.text_attention": "causal",
    "detail.rope.grid": "fixed",
    "detail.rope.grid_origin": 4096,
    "detail.chat.suffix": ["<|boi_token|>", "<|tms_token|>"],
    "detail.chat.special_tokens": False,
    "detail.chat.negative_text": " ",
}


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(locate(VERSION), tmp_path / "copy", ("hidream_o1_image", "schedulers"))


def look(copy: Copy) -> Report:
    return inspect_pipeline(copy.source(), "hidream_o1_image")


def test_every_convention_and_its_place() -> None:
    source = locate(VERSION)
    report = inspect_pipeline(source, "hidream_o1_image")
    assert {key: report.facts[key].value for key in FACTS} == FACTS
    for key in FACTS:
        found = report.facts[key]
        assert found.confidence == ("likely" if key.startswith("detail.rope.") else "certain"), key
        assert found.evidence, key
        for place in found.evidence:
            assert 1 <= place.line <= len(source.read(place.file).splitlines()), (key, place)


def test_the_sizes_are_the_table_height_first() -> None:
    source = locate(VERSION)
    pairs = re.findall(r"^    \((\d+), (\d+)\),$", source.read(PIPELINE), flags=re.MULTILINE)
    sizes = inspect_pipeline(source, "hidream_o1_image").facts["detail.image.sizes"].value
    assert len(sizes) == 11
    assert sizes == [[int(height), int(width)] for width, height in pairs]


def test_a_table_that_names_the_height_first(copy: Copy) -> None:
    copy.replace(PIPELINE, "    for w, h in PREDEFINED_RESOLUTIONS:", "    for h, w in PREDEFINED_RESOLUTIONS:")
    assert look(copy).facts["detail.image.sizes"].value[1] == [2304, 1728]


@pytest.mark.parametrize(
    ("file", "old", "new", "key", "value"),
    [
        (PIPELINE, "NOISE_SCALE = 8.0", "NOISE_SCALE = 6.5", "detail.latents.noise_scale", 6.5),
        (PIPELINE, "NOISE_SCALE * torch.randn", "torch.randn", "detail.latents.noise_scale", 1.0),
        (PIPELINE, "NOISE_SCALE * torch.randn", "sp_noise() * torch.randn", "detail.latents.noise_scale", None),
        (PIPELINE, "T_EPS = 0.001", "T_EPS = 0.02", "detail.prediction.floor", 0.02),
        (PIPELINE, ".clamp_min(T_EPS)", "", "detail.prediction.floor", None),
        (PIPELINE, "PATCH_SIZE = 32", "PATCH_SIZE = 16", "detail.patches.side", 16),
        (PIPELINE, "B (H W) (C p1 p2)", "B (H W) (p1 p2 C)", "detail.patches.layout", "(h w) (p q c) -> c (h p) (w q)"),
        (PIPELINE, "fix_point: int = 4096", "fix_point: int = 512", "detail.rope.grid_origin", 512),
        (PIPELINE, '                " ",\n', '                "",\n', "detail.chat.negative_text", ""),
        (PIPELINE, '.boi_token = "<|boi_token|>"', '.boi_token = "<|begin|>"', "detail.chat.suffix", None),
        (PIPELINE, "shift=3.0,", "shift=2.0,", "answers.scheduler.shift", 2.0),
        (PIPELINE, "1.0 - step_t_f32 / 1000.0", "step_t_f32 / 1000.0", "detail.time.denoiser", "sigma"),
        (PIPELINE, "1.0 - step_t_f32 / 1000.0", "step_t_f32 / 500.0", "detail.time.denoiser", None),
        (MODEL, "tms_token_id = 151673", "tms_token_id = 7", "detail.timestep_token.id", 7),
        (MODEL, "timestep * 1000,", "timestep * 10,", "detail.timestep.scale", 10.0),
        (SCHEDULER, "device=device, dtype=torch.int64)", "device=device)", "detail.schedule.kind", None),
        (
            SCHEDULER,
            "num_inference_steps + 1).copy()[:-1]",
            "num_inference_steps).copy()",
            "answers.scheduler.steps",
            "n",
        ),
        (
            SCHEDULER,
            "num_inference_steps + 1).copy()[:-1]",
            "num_inference_steps)[:-1]",
            "answers.scheduler.steps",
            "n-1",
        ),
        (SCHEDULER, "1 / num_train_timesteps, num_train", "0.01, num_train", "detail.schedule.start_level", 0.99),
    ],
)
def test_an_answer_follows_the_source(copy: Copy, file: str, old: str, new: str, key: str, value: object) -> None:
    before = inspect_pipeline(locate(VERSION), "hidream_o1_image").facts[key].value
    copy.replace(file, old, new)
    found = look(copy).facts[key]
    assert found.value == value
    assert (found.confidence == "unknown") is (value is None)
    assert before != value or old.startswith("num_inference_steps + 1")
