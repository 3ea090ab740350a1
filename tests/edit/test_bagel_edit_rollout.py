"""The composed package for edits against the real pipeline on a CPU; a mistake with its reference image is seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.real_rollout import OF_OTHERS, assert_passes, rolled

pytestmark = [pytest.mark.rollout, pytest.mark.rollout_table, pytest.mark.slow, pytest.mark.upstream]
VERSION = "0.30.0"
PACKAGE = "verl_omni/pipelines/bagel_edit_flow_grpo"


def test_every_check_passes(bagel_edit: Path) -> None:
    skipped = OF_OTHERS - {f"rollout-without-references-{name}" for name in ("log-prob", "velocity")}
    assert_passes(rolled(bagel_edit / PACKAGE, VERSION), VERSION, "BagelPipeline edit", skipped)


MODEL = "bagel_edit_model.py"
SCORING, GUIDANCE, PROMPTS, REFERENCES = (
    f"../flow_grpo_runtime/{name}.py" for name in ("composed_training", "guidance", "prompt_form", "references")
)
VELOCITY, WITHOUT = "rollout-wide-velocity", "rollout-without-references-log-prob"
MISTAKES = {
    "the reference at the noise level of the image": (MODEL, "torch.zeros(1, device", "torch.ones(1, device", VELOCITY),
    "latents and features at each other's position": (REFERENCES, "zip((2, 1), sizes", "zip((1, 2), sizes", VELOCITY),
    "latents that see the features behind them": (REFERENCES, "q_latents[:, :count]), dim=1), *seen(markers))",
                                                  "q_latents[:, :count]), dim=1), *seen(prefix))", VELOCITY),
    "text that sees a part of the reference": (REFERENCES, ".tril(seen)", ".tril(9)", VELOCITY),
    "a reference of zeros": (MODEL, "latents = torch.cat((there.to(context.dtype), latents)",
                                         "latents = torch.cat((0 * there.to(context.dtype), latents)", VELOCITY),
    "an image in the branch without one": (SCORING, '{**model_inputs, "reference": None}', "model_inputs", VELOCITY),
    "guidance from the branch with the image": (GUIDANCE, "start = conditional if image_free is None else image_free",
                                                "start = conditional", VELOCITY),
    "features that are off by one": (REFERENCES, "features[plan.before : len(features) - (plan.markers - plan.before)]",
                                         "features[2:]", VELOCITY),
    "an image that neither side sees": (PROMPTS, 'startswith("dummy_req_id")', 'startswith("")', WITHOUT),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_with_the_reference_is_seen(bagel_edit: Path, tmp_path: Path, name: str) -> None:
    tree = shutil.copytree(bagel_edit, tmp_path / "tree", symlinks=True)
    file, before, after, seen_by = MISTAKES[name]
    path = tree / PACKAGE / file
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")
    results = rolled(tree / PACKAGE, VERSION, seen_by)
    assert {check for check, result in results.items() if result.status == "fail"} == {seen_by}
