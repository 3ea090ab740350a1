"""A pipeline that inherits its loop from another's and brings its own model: what it inherits and what it changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from altered import Copy

from scaffold.inspect import Report, inspect_pipeline
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
MODELS = "vllm_omni/diffusion/models"
PIPELINE, MODEL = f"{MODELS}/lance/pipeline_lance.py", f"{MODELS}/lance/lance_transformer.py"
ABOVE = f"{MODELS}/bagel/pipeline_bagel.py"
FACTS = {
    "answers.scheduler.steps": "n",
    "answers.scheduler.shift": 3.0,
    "detail.scheduler.shift_setting": "timestep_shift",
    "answers.vae.channels": 48,
    "answers.vae.downsample": 16,
    "answers.latents.layout": "(h w) (p q c) -> c (h p) (w q)",
    "detail.latents.patch": 1,
    "detail.request.class": "DiffusionRequestBatch",
    "detail.rope.grid": "sequential",
    "detail.pipeline.bases": ["vllm_omni.diffusion.models.bagel.pipeline_bagel"],
    "detail.checkpoint.second_prefix": "bagel.",
    "detail.checkpoint.second_names": ["language_model", "vit_model"],
    "detail.sequence": ["text", "start_of_image", "latents", "end_of_image"],
}


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(locate("0.30.0"), tmp_path / "copy", ("lance", "bagel"))


def look(copy: Copy) -> Report:
    return inspect_pipeline(copy.source(), "LancePipeline")


def test_every_convention() -> None:
    report = inspect_pipeline(locate("0.30.0"), "LancePipeline")
    assert {key: report.fact(key).value for key in FACTS} == FACTS
    assert report.failures == {}


def test_a_pipeline_without_others_above_it_has_no_bases() -> None:
    report = inspect_pipeline(locate("0.30.0"), "BagelPipeline")
    assert report.fact("detail.pipeline.bases").value == []
    assert report.fact("detail.rope.grid").confidence == "unknown"
    assert report.fact("detail.checkpoint.second_prefix").confidence == "unknown"


@pytest.mark.parametrize(
    ("file", "old", "new", "key", "value"),
    [
        (PIPELINE, "vae_downsample_spatial: int = 16", "vae_downsample_spatial: int = 8", "answers.vae.downsample", 8),
        (PIPELINE, "vae_z_channels: int = 48", "vae_z_channels: int = 16", "answers.vae.channels", 16),
        (PIPELINE, "def forward(self, req):", "def forward(self, req: object):", "detail.request.class",
         "DiffusionRequestBatch"),
        (ABOVE, "forward(self, req: DiffusionRequestBatch)", "forward(self, req)", "detail.request.class", None),
        (ABOVE, 'extra_args.get("timestep_shift", 3.0)', "3.0", "detail.scheduler.shift_setting", None),
        (MODEL, "pos_t.append(P + 1)", "pos_t.append(P + hi)", "detail.rope.grid", None),
        (MODEL, "pos_h.append(P + 1 + hi)", "pos_h.append(P + 2 + hi)", "detail.rope.grid", None),
        (MODEL, "pos_w.append(P + 1 + wi)", "pos_w.append(P + 1 + 2 * wi)", "detail.rope.grid", None),
        (MODEL, "pos_h.append(P + 1 + hi)\n                    pos_w.append(P + 1 + wi)",
         "pos_h.append(P + 1 + wi)\n                    pos_w.append(P + 1 + hi)", "detail.rope.grid", None),
        (MODEL, "end_p = P + max_hw + 1", "end_p = P + max_hw + 2", "detail.rope.grid", None),
        (MODEL, "end_p = P + max_hw + 1", "end_p = P + h + 1", "detail.rope.grid", None),
    ],
)  # fmt: skip
def test_an_answer_follows_the_source(copy: Copy, file: str, old: str, new: str, key: str, value: object) -> None:
    text = copy.read(file)
    assert old in text
    copy.write(file, text.replace(old, new, 1))
    assert look(copy).fact(key).value == value
