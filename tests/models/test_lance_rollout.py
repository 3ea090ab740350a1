"""The rendered package against the real pipeline on a CPU; a mistake in it is seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.verify.request import VerifyRequest
from scaffold.verify.result import CheckResult
from scaffold.verify.rollout import check_ids, run
from scaffold.verify.rollout.environment import find_environment
from tests.recorded_figures import assert_recorded

pytestmark = [pytest.mark.rollout, pytest.mark.slow, pytest.mark.upstream]
VERSION = "0.30.0"
PACKAGE = "verl_omni/pipelines/lance_flow_grpo"


def measured(tree: Path, *select: str) -> dict[str, CheckResult]:
    found = find_environment(VERSION)
    if isinstance(found, str):
        pytest.skip(found)
    request = VerifyRequest(tree / PACKAGE, level="rollout", select=select)
    return {result.id: result for result in run(request, version=VERSION).checks}


def test_every_check_passes(lance: Callable[..., Path]) -> None:
    results = measured(lance())
    assert set(results) == set(check_ids())
    other = {name: f"{r.value} {r.reason}" for name, r in results.items() if r.status != "pass"}
    # Of packages that record calls, and of those whose requests bring images.
    references = {f"rollout-without-references-{kind}" for kind in ("log-prob", "velocity")}
    assert other.keys() == {"rollout-control-cached-weights", *references}, other
    assert {results[name].status for name in other} == {"skip"}
    for name, result in results.items():
        if name.endswith("-log-prob") and "bf16" not in name and name not in other:
            assert result.value is not None
            assert result.value <= 1e-6, name
    assert_recorded(VERSION, "LancePipeline", results.values())


MODEL, TRAINING, ROLLOUT = "lance_model.py", "diffusers_training_adapter.py", "vllm_omni_rollout_adapter.py"
ENGINE, VELOCITY = "rollout-engine-float32", "rollout-wide-velocity"
MISTAKES = {
    "rows and columns exchanged": (TRAINING, "return grid.expand(", "return grid.flip(-1).expand(", VELOCITY),
    "the image at one position": (MODEL, "F.pad(grid, (1, 0))", "F.pad(0 * grid, (1, 0))", VELOCITY),
    "the last marker where the image begins": (MODEL, "first + 1 + side", "first + 1", VELOCITY),
    "the axes' frequencies in turns": (MODEL, "runs[j * len(runs) // len(exponents)]", "j % 3", VELOCITY),
    "the prompt without the system message": (ROLLOUT, "return PROMPT_PREFIX + ", "return ", VELOCITY),
    "the embedding under its second name": (ROLLOUT, '(name.removeprefix("bagel."), tensor)', "(name, tensor)", ENGINE),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_that_only_a_reference_shows(lance: Callable[..., Path], tmp_path: Path, name: str) -> None:
    tree = shutil.copytree(lance(), tmp_path / "tree", symlinks=True)
    file, before, after, seen_by = MISTAKES[name]
    path = tree / PACKAGE / file
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")
    results = measured(tree, VELOCITY, ENGINE)
    assert {check for check, result in results.items() if result.status == "fail"} == {seen_by}
