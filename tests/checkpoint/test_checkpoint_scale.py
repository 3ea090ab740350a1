"""The budget for a very large checkpoint, with room for a slow machine; the benchmark measures it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory of one program is known on Linux only")
def test_a_hundred_thousand_tensors() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "header_scan.py"
    spec = importlib.util.spec_from_file_location("header_scan", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    result = benchmark.measure(100_000, 64, 1)
    assert result["tensors"] == 100_000
    assert result["peak_megabytes"] < 300
    # Two seconds on an idle machine; a start-up of Python, measured in the same run, tells how slow this one is.
    assert result["seconds"] < max(2.0, 250 * result["seconds"] / result["seconds_per_start_up"])
