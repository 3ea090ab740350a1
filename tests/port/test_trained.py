"""A rendered module trains as the engine trains it: checkpointed layers, an adapter of PEFT's, FSDP around both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scaffold.resources import kit_root
from tests.port.case import CASES

pytestmark = [pytest.mark.slow, pytest.mark.upstream]
ROOT = Path(__file__).resolve().parents[2]


def test_adapter_checkpointing_and_sharding_go_together(tmp_path: Path) -> None:
    arguments = [
        "new",
        "ling_bot_video",
        "--pipeline",
        "LingBotVideoPipeline",
        "--vllm-omni",
        "0.30.0",
        "--out",
        "tree",
    ]
    made = subprocess.run(
        [sys.executable, "-m", "scaffold", *arguments, "--out", "tree"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    package = tmp_path / "tree/verl_omni/pipelines/ling_bot_video_flow_grpo"
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("trained_worker.py")),
            str(package),
            str(CASES / "lingbot_video.py"),
        ],
        env={**os.environ, "PYTHONPATH": str(kit_root())},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["targets"] == len(found["trained"]) == 7
    assert found["same_names"]
    assert found["worst"] <= 1e-6
    assert found["runs"] == 2  # once forward, once more for the backward pass
    assert found["sharded"] == 2
    assert found["saved"]
