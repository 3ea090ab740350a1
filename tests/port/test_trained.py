"""A rendered module trains as the engine trains it: checkpointed layers, an adapter of PEFT's, FSDP around both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.port.case import CASES

pytestmark = [pytest.mark.slow, pytest.mark.upstream]


def test_adapter_checkpointing_and_sharding_go_together(
    scaffold_cli: Callable[..., Any],
    warm_python: Callable[..., Any],
    kit_environment: Callable[..., dict[str, str]],
    tmp_path: Path,
) -> None:
    arguments = ("ling_bot_video", "--pipeline", "LingBotVideoPipeline", "--vllm-omni", "0.30.0")
    scaffold_cli("new", *arguments, "--patch", "--out", tmp_path / "tree").success()
    package = tmp_path / "tree/verl_omni/pipelines/ling_bot_video_flow_grpo"
    worker = Path(__file__).with_name("trained_worker.py")
    done = warm_python([worker, package, CASES / "lingbot_video.py"], env=kit_environment(tmp_path / "tree"))
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["targets"] == len(found["trained"]) == 7
    assert found["same_names"]
    assert found["worst"] <= 1e-6
    assert found["runs"] == 2  # once forward, once more for the backward pass
    assert found["sharded"] == 2
    assert found["saved"]
