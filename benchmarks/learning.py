"""The reward and the log-prob difference of rendered and hand-written BAGEL in verl-omni's own trainer, on a CPU.

``make learning`` runs three seeds of each, and one run with a learning rate of 0: what is rendered under v1, what is
hand-written under v0, because v1 carries no column of the dataset to the trainer that it reads there. It writes
``docs/learning.json`` with every step and ``docs/learning.svg``, and prints the table. What the file has already is not
run again: a run that was stopped goes on where it was. On more processors, ``--at-once`` takes several seeds together.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from scaffold.verify.package import open_package
from scaffold.verify.train.level import TrainRequest, opened, run_variant
from scaffold.verify.train.record import LOG_PROB, REWARD, RunRecord
from scaffold.verify.train.trainers import V0
from scaffold.verify.train.variants import VARIANTS, variants

DOCS = Path(__file__).resolve().parents[1] / "docs"
Curves = dict[str, list[float]]
Runs = dict[str, list[Curves]]
RENDERED, HAND_WRITTEN, FLAT = "rendered", "hand-written", "learning rate 0"
LOOKS = {RENDERED: "#0b7a75", HAND_WRITTEN: "#b4540a", FLAT: "#7a7a7a"}


def main() -> int:
    """Run, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verl-omni", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--at-once", type=int, default=1, metavar="SEEDS", help="that run beside one another")
    parser.add_argument("--package", type=Path, help="rendered as bagel_scaffold; by default it is rendered now")
    parser.add_argument("--draw", action="store_true", help="draw docs/learning.json again, run nothing")
    given = parser.parse_args()
    data = DOCS / "learning.json"
    if not given.draw:
        run(given, data)
    found = json.loads(data.read_text(encoding="utf-8"))
    runs = {name: list(found["runs"][name].values()) for name in LOOKS if name in found["runs"]}
    (DOCS / "learning.svg").write_text(draw(runs, found["steps"]), encoding="utf-8")
    print(table(runs))
    return 0


def run(given: argparse.Namespace, data: Path) -> None:
    """Take every run that ``data`` does not hold, and add it as it ends.

    Raises:
        SystemExit: ``data`` is of another number of steps, or a run did not get to its end.
    """
    steps: int = given.steps
    kept: dict[str, Any] = {"steps": steps, "runs": {}}
    if data.is_file():
        kept = json.loads(data.read_text(encoding="utf-8"))
    if kept["steps"] != steps:
        raise SystemExit(f"{data} has runs of {kept['steps']} steps: take --steps {kept['steps']}, or move it away")
    runs: dict[str, dict[str, Curves]] = kept["runs"]
    with tempfile.TemporaryDirectory() as scratch:
        package = given.package or rendered(Path(scratch))
        hand_written = given.verl_omni / "verl_omni" / "pipelines" / "bagel_flow_grpo"
        writing = Lock()

        def take(seed: int) -> None:
            have = {name for name in LOOKS if str(seed) in runs.get(name, {})}
            flat = seed == 1 and FLAT not in have
            if have >= {RENDERED, HAND_WRITTEN} and not flat:
                return
            request = TrainRequest(steps=steps, verl_omni=given.verl_omni, seed=seed, flat=flat)
            found: dict[str, RunRecord | None] = {}
            with opened(package, request, lambda line: print(line, file=sys.stderr, flush=True)) as setting:
                if RENDERED not in have or flat:
                    done = run_variant(setting, VARIANTS[0])
                    found = {RENDERED: done.run, FLAT: done.control}
                if HAND_WRITTEN not in have:
                    beside = replace(setting, beside=open_package(hand_written))
                    both = run_variant(beside, variants()[V0]).beside
                    found[HAND_WRITTEN] = None if both is None else both[1]
            with writing:
                for name, record in found.items():
                    if record is not None:
                        runs.setdefault(name, {})[str(seed)] = curves(record, steps)
                data.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")

        with ThreadPoolExecutor(given.at_once) as pool:
            list(pool.map(take, range(1, given.seeds + 1)))


def rendered(folder: Path) -> Path:
    """A package beside which the checkout's own keeps its name."""
    new = [sys.executable, "-m", "scaffold", "new", "bagel_scaffold", "--pipeline", "BagelPipeline"]
    subprocess.run([*new, "--patch", "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder / "verl_omni" / "pipelines" / "bagel_scaffold_flow_grpo"


def curves(record: RunRecord, steps: int) -> Curves:
    """What is kept of a run.

    Raises:
        SystemExit: it did not take all its steps.
    """
    if len(record.steps) < steps:
        raise SystemExit(f"a run took {len(record.steps)} of {steps} steps: {record.problem}")
    return {"reward": record.series(REWARD), "difference": record.series(LOG_PROB)}


def table(runs: Runs) -> str:
    """Quarters of the reward, their difference with lowest and highest seed, the largest log-prob difference."""
    lines = [
        "| | seeds | first quarter | last quarter | gain | largest log-prob difference |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in runs.items():
        if not found:
            continue
        quarters = [
            (_mean(run["reward"][: (n := len(run["reward"]) // 4)]), _mean(run["reward"][-n:])) for run in found
        ]
        gains = [last - first for first, last in quarters]
        spread = f" ({min(gains):.4f} to {max(gains):.4f})" if len(gains) > 1 else ""
        first, last = (_mean([pair[side] for pair in quarters]) for side in (0, 1))
        largest = max(value for run in found for value in run["difference"])
        lines.append(
            f"| {name} | {len(found)} | {first:.4f} | {last:.4f} | {_mean(gains):.4f}{spread} | {largest:.1e} |"
        )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 900, 330, 66, 46, 286, 90
PANEL = (WIDTH - 2 * LEFT - GAP + 40) / 2


def draw(runs: Runs, steps: int) -> str:
    """Two panels: the mean over seeds as a line, lowest to highest as a band."""
    rewards = [value for found in runs.values() for run in found for value in run["reward"]]
    low, high = min(rewards), max(rewards)
    room = 0.06 * (high - low)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12" fill="#222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *_panel(runs, steps, LEFT, "reward", "reward (mean brightness)", (low - room, high + room), None),
        *_panel(runs, steps, LEFT + PANEL + GAP, "difference", "largest log-prob difference", (-8.5, 0.0), 1e-9),
    ]
    x = LEFT
    for name, colour in LOOKS.items():
        if not runs.get(name):
            continue
        label = f"{name}, {len(runs[name])} seeds" if len(runs[name]) > 1 else name
        parts.append(
            f'<path d="M{x} 18h26" stroke="{colour}" stroke-width="3"/><text x="{x + 34}" y="22">{label}</text>'
        )
        x += 60 + 7 * len(label)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    runs: Runs, steps: int, left: float, key: str, title: str, bounds: tuple[float, float], floor: float | None
) -> list[str]:
    """One panel; with ``floor`` its values are drawn as powers of ten, none below it."""

    def value(number: float) -> float:
        return number if floor is None else math.log10(max(number, floor))

    def at(step: int, number: float) -> str:
        y = BOTTOM - (value(number) - bounds[0]) / (bounds[1] - bounds[0]) * (BOTTOM - TOP)
        return f"{left + step / max(steps - 1, 1) * PANEL:.1f} {y:.1f}"

    parts = [f'<text x="{left}" y="{TOP - 6}" font-weight="bold">{title}</text>']
    ticks = [bounds[0] + (bounds[1] - bounds[0]) * i / 4 for i in range(5)] if floor is None else range(-8, 1, 2)
    for tick in ticks:
        y = BOTTOM - (tick - bounds[0]) / (bounds[1] - bounds[0]) * (BOTTOM - TOP)
        label = f"{tick:.3f}" if floor is None else f"1e{tick:d}"
        parts.append(f'<path d="M{left} {y:.1f}h{PANEL:.1f}" stroke="#e3e3e3"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for step in range(0, steps, 3):
        x = at(step, 1.0).split()[0]
        parts.append(f'<text x="{x}" y="{BOTTOM + 18}" text-anchor="middle">{step + 1}</text>')
    parts.append(f'<text x="{left + PANEL / 2:.0f}" y="{BOTTOM + 36}" text-anchor="middle">training step</text>')
    for name, colour in LOOKS.items():
        found = [run[key] for run in runs.get(name, [])]
        if not found:
            continue
        columns = list(zip(*found, strict=True))
        if len(found) > 1:
            band = [at(i, max(column)) for i, column in enumerate(columns)]
            band += [at(i, min(column)) for i, column in reversed(list(enumerate(columns)))]
            parts.append(f'<path d="M{"L".join(band)}Z" fill="{colour}" opacity="0.16"/>')
        line = "L".join(at(i, _mean(column)) for i, column in enumerate(columns))
        parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
    return parts


if __name__ == "__main__":
    sys.exit(main())
