"""``benchmarks/rendered_step.py`` on a CPU: a row for each batch, and operations that follow what is computed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from warm_python import WarmPython

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "rendered_step.py"


# The script with packages of their own processes, each a fork in which torch is imported already.
WARM = """
import runpy, subprocess, sys
sys.path.insert(0, sys.argv[1])
from warm_python import WarmPython
subprocess.run = lambda command: WarmPython()(command[1:])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.upstream
def test_rows_of_packages_one_of_which_fails(
    rendered: Callable[..., Path], warm_python: WarmPython, tmp_path: Path
) -> None:
    ported = rendered("omni_gen2", "--pipeline", "OmniGen2Pipeline", "--vllm-omni", "0.30.0")
    rows = tmp_path / "rows.json"
    words = [tmp_path / "absent", ported, "--device", "cpu", "--size", "tiny", "--batch", "1", "2"]
    words += ["--side", "64", "--text", "16", "--warmup", "0", "--repeats", "1", "--alone", "--json", rows]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = warm_python(["-c", WARM, Path(__file__).resolve().parents[1], SCRIPT, *words], env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"failed: {tmp_path / 'absent'}"
    found = {(row["batch"], row["calls"]): row for row in map(json.loads, rows.read_text("utf-8").splitlines())}
    assert set(found) == {(1, "together"), (1, "alone"), (2, "together"), (2, "alone")}
    assert all(row["seconds"] > 0 for row in found.values())
    # 16 image tokens and 16 or 9 of text go through every layer: the same work, in one call or in two.
    assert found[2, "together"]["tflop"] == pytest.approx(found[2, "alone"]["tflop"], rel=1e-9)
    assert found[2, "together"]["tflop"] == pytest.approx(2 * found[1, "together"]["tflop"], rel=1e-9)
    assert found[1, "together"]["trajectory_mb"] < 0.2  # the rotary tables alone are 0.3
