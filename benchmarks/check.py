"""Time ``check`` on one package and, where a checkout is given, on all of its pipelines; start-up included.

python benchmarks/check.py [--verl-omni CHECKOUT] [--repeats 7]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

TOOL = [sys.executable, "-m", "scaffold", "check"]
REFERENCE = Path(__file__).resolve().parents[1] / "reference_bagel"


def median_seconds(command: list[str], repeats: int) -> float:
    """Median wall time of a command, after one run that warms the caches; findings are no failure."""
    seconds = []
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(done.stderr.decode())
        if repeat:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    """Print one line a target: seconds, and the ratio to an empty Python."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verl-omni", type=Path, help="checkout whose pipelines are checked too")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    empty = median_seconds([sys.executable, "-c", "pass"], arguments.repeats)
    print(f"{'python -c pass':40s} {empty:6.3f} s")
    package = next(REFERENCE.glob("verl_omni/pipelines/*/"))
    targets = {"one package": package, "a rendered tree": REFERENCE}
    if arguments.verl_omni is not None:
        pipelines = arguments.verl_omni / "verl_omni" / "pipelines"
        targets["one package of a checkout"] = next(path.parent for path in sorted(pipelines.glob("*/*adapter.py")))
        targets["all pipelines of a checkout"] = arguments.verl_omni
    for label, target in targets.items():
        seconds = median_seconds([*TOOL, str(target)], arguments.repeats)
        print(f"{label:40s} {seconds:6.3f} s  {seconds / empty:6.1f} x")


if __name__ == "__main__":
    main()
