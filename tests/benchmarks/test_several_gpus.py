"""``benchmarks/several_gpus.py`` on two processes of a CPU: what it finds, and that its checks can fail."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest
from warm_python import WarmPython

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "several_gpus.py"
LAYERS, TARGETS, MATRICES = 2, 7, 2
COLLECTS = tuple(int(part) for part in version("peft").split(".")[:2]) < (0, 21)

# No wrapping, so that no gradient is reduced; and a checkpoint that is not loaded.
BROKEN = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import several_gpus, sharding
sharding.wrap = lambda module, *rest: module.bfloat16()
sharding.load = lambda *rest: None
sys.exit(several_gpus.main())
"""


def ran(warm_python: WarmPython, script: Path, *arguments: str) -> tuple[list[dict], str, int]:
    """Rows of the run, everything its first rank wrote to standard output, and its exit code."""
    command = (script, "--device", "cpu", "--warmup", "0", "--repeats", "1", *arguments)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "VERL_OMNI_SRC": ""}
    done, _ = warm_python.ranks(command, command, env=environment)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows, done.stderr
    return rows, done.stdout, done.returncode


@pytest.mark.slow
def test_two_processes_compute_what_one_does(warm_python: WarmPython) -> None:
    rows, printed, code = ran(warm_python, SCRIPT)
    found = {(row["row"], row.get("strategy"), row.get("when", row.get("arithmetic"))): row for row in rows}
    assert rows[0]["world"] == 2
    for strategy in ("fsdp", "fsdp2"):
        outputs, gradients = found["outputs", strategy, None], found["gradients", strategy, None]
        assert outputs["ok"]
        assert outputs["value"] <= outputs["limit"] < 0.1
        assert gradients["ok"]
        assert gradients["value"] <= gradients["limit"] < gradients["not_reduced"]
        resume = found["resume", strategy, None]
        assert resume["ok"]
        assert (resume["different"], resume["output"]) == (0, 0.0)
        assert resume["not_loaded"] > 0.1
        assert found["speed", strategy, None]["seconds"] > 0
        for when in ("before the first step", "after a step"):
            collection = found["collection", strategy, when]
            assert collection["expected"] == LAYERS * TARGETS * MATRICES
            assert collection["tensors"] == (collection["expected"] if COLLECTS else 0)
            assert collection["ok"] is COLLECTS
            assert ("from 0.21 on" in collection.get("reason", "")) is not COLLECTS
    assert (code == 0) is COLLECTS
    assert "resume      fsdp2     ok" in printed


@pytest.mark.slow
def test_gradients_that_are_not_reduced_and_weights_that_are_not_loaded_fail(
    warm_python: WarmPython, tmp_path: Path
) -> None:
    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    rows, _, code = ran(warm_python, script, "--strategy", "fsdp2", "--measure", "equal", "resume")
    verdicts = {row["row"]: row["ok"] for row in rows}
    assert verdicts["outputs"] is True
    assert verdicts["gradients"] is False
    assert verdicts["resume"] is False
    assert code == 1


def test_without_torchrun_it_says_how_to_run_it(warm_python: WarmPython) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    done = warm_python([SCRIPT], env=environment)
    assert done.returncode == 2
    assert "torchrun --standalone --nproc-per-node N" in done.stderr
    assert len(done.stderr.splitlines()) == 1
