"""``benchmarks/rendered_step.py`` on a CPU: a row for each batch, and operations that follow what is computed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from warm_python import WarmPython

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "rendered_step.py"


@pytest.mark.slow
@pytest.mark.upstream
def test_rows_of_packages_one_of_which_fails(
    scaffold_cli: Callable[..., Any], warm_python: WarmPython, tmp_path: Path
) -> None:
    command = ("new", "omni_gen2", "--pipeline", "OmniGen2Pipeline", "--vllm-omni", "0.30.0", "--out")
    scaffold_cli(*command, tmp_path / "ported").success()
    rows = tmp_path / "rows.json"
    words = [tmp_path / "absent", tmp_path / "ported", "--device", "cpu", "--size", "tiny", "--batch", "1", "2"]
    words += ["--side", "64", "--text", "16", "--warmup", "0", "--repeats", "1", "--alone", "--json", rows]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = warm_python([SCRIPT, *words], env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"failed: {tmp_path / 'absent'}"
    found = {(row["batch"], row["calls"]): row for row in map(json.loads, rows.read_text("utf-8").splitlines())}
    assert set(found) == {(1, "together"), (1, "alone"), (2, "together"), (2, "alone")}
    assert all(row["seconds"] > 0 for row in found.values())
    # 16 image tokens and 16 or 9 of text go through every layer: the same work, in one call or in two.
    assert found[2, "together"]["tflop"] == pytest.approx(found[2, "alone"]["tflop"], rel=1e-9)
    assert found[2, "together"]["tflop"] == pytest.approx(2 * found[1, "together"]["tflop"], rel=1e-9)
    assert found[1, "together"]["trajectory_mb"] < 0.2  # the rotary tables alone are 0.3
