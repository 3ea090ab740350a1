"""The rendered package against the real pipeline on a CPU; a mistake in it is seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.real_rollout import assert_passes, rolled

# Of packages that blocks compose, BAGEL and SenseNova-U1 run with every change.
pytestmark = [pytest.mark.rollout, pytest.mark.rollout_table, pytest.mark.slow, pytest.mark.upstream]
VERSION = "0.30.0"
PACKAGE = "verl_omni/pipelines/lance_flow_grpo"


def test_every_check_passes(lance: Path) -> None:
    assert_passes(rolled(lance / PACKAGE, VERSION), VERSION, "LancePipeline")


TRAINING, ROLLOUT = "diffusers_training_adapter.py", "vllm_omni_rollout_adapter.py"
LAYOUTS = "../flow_grpo_runtime/layouts.py"
ENGINE, VELOCITY = "rollout-engine-float32", "rollout-wide-velocity"
MISTAKES = {
    "rows and columns exchanged": (TRAINING, '"latent_positions": grid', '"latent_positions": grid.flip(-1)', VELOCITY),
    "the image at one position": (LAYOUTS, "F.pad(grid, (1, 0))", "F.pad(0 * grid, (1, 0))", VELOCITY),
    "the last marker where the image begins": (LAYOUTS, "(side + offset for", "(offset for", VELOCITY),
    "the axes' frequencies in turns": (LAYOUTS, "runs[j * len(runs) // count]", "j % 3", VELOCITY),
    "the embedding under its second name": (ROLLOUT, '        second_name="bagel.",\n', "", ENGINE),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_that_only_a_reference_shows(lance: Path, tmp_path: Path, name: str) -> None:
    tree = shutil.copytree(lance, tmp_path / "tree", symlinks=True)
    file, before, after, seen_by = MISTAKES[name]
    path = tree / PACKAGE / file
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")
    results = rolled(tree / PACKAGE, VERSION, VELOCITY, ENGINE)
    assert {check for check, result in results.items() if result.status == "fail"} == {seen_by}
