"""An exported adapter in vllm-omni's own adapter manager: bound and followed, or refused in its words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_rollout import LIMIT, rolled

VERSION = "0.30.0"
CHECK = "rollout-adapter-file"


@pytest.mark.rollout
@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.rollout_table
@pytest.mark.parametrize(
    ("pipeline", "refused"), [("StableDiffusion3Pipeline", None), ("FluxPipeline", "expected target modules in")]
)
def test_the_manager_binds_the_files_or_says_why_not(
    rendered: Callable[..., Path], pipeline: str, refused: str | None
) -> None:
    tree = rendered("model", "--pipeline", pipeline, "--vllm-omni", VERSION)
    found = rolled(tree / "verl_omni/pipelines/model_flow_grpo", VERSION, CHECK)[CHECK]
    if refused is not None:
        assert found.status == "skip"
        assert refused in found.reason
        return
    assert found.status == "pass", found.reason
    assert found.value is not None
    assert found.value <= LIMIT
