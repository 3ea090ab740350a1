"""Time whole commands against ``python -c pass`` and print ratios; the budgets stand in docs/performance.md.

python benchmarks/commands.py [--repeats 7]
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[1] / "reference_bagel"
TOOL = [sys.executable, "-m", "scaffold"]


def median_seconds(command: list[str], repeats: int, cleanup: Path | None = None) -> float:
    """Median wall time of a command, after one run that warms the caches."""
    seconds = []
    for repeat in range(repeats + 1):
        if cleanup is not None:
            shutil.rmtree(cleanup, ignore_errors=True)
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        if repeat:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def hundred_thousand_lines(folder: Path) -> Path:
    """Copy the reference package and give it a file that is a lot to read and has nothing wrong."""
    root = folder / "long"
    shutil.copytree(REFERENCE, root, symlinks=True)
    function = "def f{0}(a, b):\n    c = a + b\n    return [c, {{'k': a}}, f'{{b}}']\n\n\n"
    package = next((root / "verl_omni" / "pipelines").iterdir())
    (package / "long.py").write_text("".join(function.format(n) for n in range(20_000)))
    return package


def main() -> None:
    """Print one line a command: seconds and the ratio to an empty Python."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    empty = median_seconds([sys.executable, "-c", "pass"], repeats)
    print(f"{'python -c pass':40s} {empty:6.3f} s")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        for label, command in {
            "--help": ["--help"],
            "inspect bagel": ["inspect", "bagel", "--vllm-omni", "0.27.0rc1", "--format", "json"],
            "check of 100,000 lines": ["check", str(hundred_thousand_lines(Path(folder)))],
            "new bagel": ["new", "bagel", "--vllm-omni", "0.27.0rc1", "--out", str(out)],
        }.items():
            seconds = median_seconds([*TOOL, *command], repeats, out)
            print(f"{'omni-scaffold ' + label:40s} {seconds:6.3f} s  {seconds / empty:6.1f} x")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{'largest process':40s} {peak:6.0f} MiB")


if __name__ == "__main__":
    main()
