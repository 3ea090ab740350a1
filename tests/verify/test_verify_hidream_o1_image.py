"""A package for one decoder over pixel patches, rendered from the wheel, on the kit and on the real engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.verify.catalogue import catalogue
from tests.real_rollout import OF_OTHERS, assert_passes, rolled

pytestmark = pytest.mark.upstream
VERSION, MODEL = "0.30.0", "hidream_o1_image"
RUNTIME = "../flow_grpo_runtime"


@pytest.fixture(scope="module")
def package(rendered: Callable[..., Path]) -> Path:
    return rendered(MODEL, "--vllm-omni", VERSION) / f"verl_omni/pipelines/{MODEL}_flow_grpo"


def test_every_contract_holds_on_the_kit(results: Any, package: Path) -> None:
    found = results(package)
    assert list(found) == [entry.id for entry in catalogue()]
    missed = {name: f"{check.status}: {check.reason}" for name, check in found.items() if check.status != "pass"}
    missed.pop("fsdp2-nccl", None)  # needs two GPUs
    if found["schedule-diffusers-0.40.0"].status == "skip":
        missed.pop("schedule-diffusers-0.40.0")  # not fetched
    assert missed == {}


@pytest.mark.parametrize(
    ("file", "right", "wrong", "contract"),
    [
        ("common.py", "return [1.0, *levels[1:]]", "return levels", "schedule-diffusers-0.38.0"),
        ("common.py", ".long().double()", ".round().double()", "schedule-diffusers-0.38.0"),
        (f"{RUNTIME}/composed_scheduler.py", "prev_sample * scale,", "prev_sample,", "window-alignment"),
        ("common.py", "settings_of(CFG_DEFAULTS)", "lambda given: dict(CFG_DEFAULTS)", "cfg-settings"),
        (
            f"{RUNTIME}/layouts.py",
            "self._first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)",
            "pass",
            "padding-invariance",
        ),
        (f"{RUNTIME}/two_streams.py", "latents_first = not own", "latents_first = False", "fsdp1-bf16"),
    ],
)
def test_a_mistake_fails_its_contract(
    results: Any,
    package: Path,
    tmp_path: Path,
    edit: Callable[..., None],
    file: str,
    right: str,
    wrong: str,
    contract: str,
) -> None:
    import shutil

    copy = tmp_path / package.parents[2].name
    shutil.copytree(package.parents[2], copy)
    broken = copy / package.relative_to(package.parents[2])
    edit(broken / file, right, wrong)
    assert results(broken, contract)[contract].status == "fail"


@pytest.mark.rollout_table
@pytest.mark.rollout
@pytest.mark.slow
def test_the_real_pipeline_is_followed(package: Path) -> None:
    # This engine starts the pipeline without a warm-up.
    skipped = {*OF_OTHERS, "rollout-warm-up"}
    assert_passes(rolled(package, VERSION), VERSION, "HiDreamO1ImagePipeline", skipped)


@pytest.mark.rollout
@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        (f"{MODEL}_model.py", "origin=4096", "origin=0"),
        pytest.param(
            *(f"{MODEL}_model.py", "HIGHEST_LEVEL = 0.999", "HIGHEST_LEVEL = 1.0"), marks=pytest.mark.rollout_table
        ),
        pytest.param("common.py", "SCHEDULE_SHIFT = 3.0", "SCHEDULE_SHIFT = 2.0", marks=pytest.mark.rollout_table),
    ],
)
def test_a_convention_that_only_the_engine_knows_is_seen(
    package: Path, tmp_path: Path, edit: Callable[..., None], file: str, right: str, wrong: str
) -> None:
    import shutil

    copy = tmp_path / package.parents[2].name
    shutil.copytree(package.parents[2], copy)
    broken = copy / package.relative_to(package.parents[2])
    edit(broken / file, right, wrong)
    found = rolled(broken, VERSION, "rollout-sde-velocity", "rollout-engine-float32")
    assert found["rollout-sde-velocity"].status == "fail"


@pytest.mark.rollout
def test_a_result_that_the_engine_cannot_finish_is_seen(
    package: Path, tmp_path: Path, edit: Callable[..., None]
) -> None:
    import shutil

    copy = tmp_path / package.parents[2].name
    shutil.copytree(package.parents[2], copy)
    broken = copy / package.relative_to(package.parents[2])
    name = "get_hidream_o1_image_post_process_func"
    edit(
        broken / "vllm_omni_rollout_adapter.py",
        f'results.wrap_post_processor(pipeline_hidream_o1_image, "{name}")\n',
        f"assert pipeline_hidream_o1_image.{name} is not None\n",
    )
    found = rolled(broken, VERSION, "rollout-media")["rollout-media"]
    assert found.status == "fail"
    assert "expects (patch_tensor, height, width), got dict" in found.reason
