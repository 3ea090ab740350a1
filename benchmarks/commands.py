"""Time whole commands against ``python -c pass`` and print ratios; the budgets stand in docs/performance.md.

python benchmarks/commands.py [--repeats 7] [--verify]

Processor time is user and system time of the command and all that it starts: what others do on the machine moves it
less than wall time. All are medians, those of the empty Python of runs in between: a machine that others use is not
equally fast all the time. A first run that does not count leaves Python's bytecode. ``VERL_OMNI_SRC`` names a checkout
of verl-omni for the row of its own; ``--verify`` adds the contracts.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from scaffold.upstream.fetch import fetch_wheel

REFERENCE = Path(__file__).resolve().parents[1] / "reference_bagel"
TOOL = [sys.executable, "-m", "scaffold"]
RELEASE = "0.27.0rc1"
EMPTY = [sys.executable, "-c", "pass"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Seconds(NamedTuple):
    """What a command takes."""

    wall: float
    processor: float


def once(command: list[str], cleanup: Path | None = None, statuses: tuple[int, ...] = (0,)) -> Seconds:
    """Run a command and time it.

    Raises:
        RuntimeError: it leaves with another status.
    """
    if cleanup is not None:
        shutil.rmtree(cleanup, ignore_errors=True)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in statuses:
        raise RuntimeError(f"{' '.join(command)} left with {done.returncode}: {done.stderr.strip()}")
    return Seconds(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def beside(command: list[str], repeats: int, cleanup: Path | None = None) -> tuple[Seconds, Seconds]:
    """Return the medians of a command, after a run that warms the caches, and of an empty Python run in between."""
    once(command, cleanup)
    runs, empty = [], []
    for _ in range(repeats):
        empty += [once(EMPTY) for _ in range(3)]
        runs.append(once(command, cleanup))
    return _median(runs), _median(empty)


def _median(runs: list[Seconds]) -> Seconds:
    return Seconds(statistics.median(run.wall for run in runs), statistics.median(run.processor for run in runs))


def hundred_thousand_lines(folder: Path) -> Path:
    """Copy the reference package and give it a file that is a lot to read and has nothing wrong."""
    root = folder / "long"
    shutil.copytree(REFERENCE, root, symlinks=True)
    function = "def f{0}(a, b):\n    c = a + b\n    return [c, {{'k': a}}, f'{{b}}']\n\n\n"
    package = next((root / "verl_omni" / "pipelines").iterdir())
    (package / "long.py").write_text("".join(function.format(n) for n in range(20_000)))
    return package


def main() -> None:
    """Print one line a command: seconds and the ratios to an empty Python."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--verify", action="store_true", help="time `verify` of the reference package too, once")
    options = parser.parse_args()
    print(f"{'':28s}      wall            processor      python -c pass")

    def show(label: str, took: Seconds, empty: Seconds) -> None:
        wall, processor = took.wall / empty.wall, took.processor / empty.processor
        ratios = f"{took.wall:7.3f} s {wall:6.1f} x {took.processor:7.3f} s {processor:6.1f} x {empty.processor:7.4f} s"
        print(f"{label:28s} {ratios}", flush=True)

    # Of a wheel that somebody names, what was found is not kept: this is what a first look takes.
    wheel = fetch_wheel("vllm-omni", RELEASE)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        rows = {
            "--help": ["--help"],
            "inspect bagel": ["inspect", "bagel", "--vllm-omni", RELEASE, "--format", "json"],
            "inspect bagel, not kept": ["inspect", "bagel", "--vllm-omni", str(wheel), "--format", "json"],
            "check of one package": ["check", str(REFERENCE)],
            "check of 100,000 lines": ["check", str(hundred_thousand_lines(Path(folder)))],
            "new bagel": ["new", "bagel", "--vllm-omni", RELEASE, "--patch", "--out", str(out)],
            "new bagel, not kept": ["new", "bagel", "--vllm-omni", str(wheel), "--patch", "--out", str(out)],
        }
        checkout = os.environ.get("VERL_OMNI_SRC")
        if checkout:
            rows["check of verl-omni"] = ["check", "--exit-zero", checkout]
        for label, command in rows.items():
            show(label, *beside([*TOOL, *command], options.repeats, out))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"largest process: {peak // 1024} MiB")
    if options.verify:
        empty = _median([once(EMPTY) for _ in range(9)])
        show("verify (contracts)", once([*TOOL, "verify", str(REFERENCE)], statuses=(0, 1)), empty)


if __name__ == "__main__":
    main()
