"""What a run left behind: the trainer's metrics by step, the events of its processes, its log."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOG_PROB = "rollout_corr/logprob_abs_diff_max"
REWARD = "critic/rewards/mean"
# Lines that a failed engine call leaves while the trainer goes on.
ERRORS = ("Error executing method", "failed on worker rank")
MAX_LINE = 1 << 20


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        number: from 1.
        metrics: what the trainer logged.
        rewards: mean score of each group of images of one prompt.
        windows: the sigmas of each sample's window; None where the batch did not hold them.
    """

    number: int
    metrics: Mapping[str, float]
    rewards: tuple[float, ...] = ()
    windows: tuple[tuple[float, ...], ...] | None = None

    def metric(self, name: str) -> float:
        """A metric, NaN where the trainer did not log it."""
        return self.metrics.get(name, math.nan)

    @property
    def reward(self) -> float:
        """Mean score of the step."""
        return self.metric(REWARD)


@dataclass(frozen=True)
class Push:
    """One push of weights as one rank of the engine received it; ``changed`` counts tensors that differ after it."""

    replica: str
    rank: int
    changed: int
    error: str | None


@dataclass(frozen=True)
class RunRecord:
    """One run.

    Attributes:
        problem: one line on why it did not end well, or None.
        steps: in order.
        pushes: in the order in which each process received them.
        errors: lines of the log in which a worker reported an error, each once.
        seconds: wall time.
        log: file with all that was printed, kept where something went wrong.
    """

    problem: str | None
    steps: tuple[Step, ...]
    pushes: tuple[Push, ...]
    errors: tuple[str, ...]
    seconds: float
    log: Path | None = None

    def series(self, name: str) -> list[float]:
        """A metric by step."""
        return [step.metric(name) for step in self.steps]


def read_metrics(path: Path) -> list[tuple[int, dict[str, float]]]:
    """Lines of verl's file logger; a last line that is still being written is left out."""
    found = []
    for line in _lines(path):
        try:
            entry = json.loads(line)
            data = {name: float(value) for name, value in entry["data"].items() if isinstance(value, int | float)}
            found.append((int(entry["step"]), data))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def read_record(folder: Path, log: Path, problem: str | None, seconds: float) -> RunRecord:
    """Gather what a run left.

    Args:
        folder: with ``metrics.jsonl`` and the folder ``events``.
        log: what was printed.
        problem: why it did not end well.
        seconds: wall time.
    """
    events = [event for path in sorted((folder / "events").glob("*.jsonl")) for event in _events(path)]
    batches = [event for event in events if event["kind"] == "batch"]
    # Validation before the first step is logged under 0 and is no training step.
    metrics = [
        (number, data) for number, data in read_metrics(folder / "metrics.jsonl") if "training/global_step" in data
    ]
    steps = []
    for index, (number, data) in enumerate(metrics):
        batch = batches[index] if index < len(batches) else None
        windows = batch["windows"] if batch else None
        steps.append(
            Step(
                number,
                data,
                tuple(_group_means(batch)) if batch else (),
                None if windows is None else tuple(tuple(sample) for sample in windows),
            )
        )
    pushes = tuple(
        Push(str(event["replica"]), int(event["rank"]), int(event["changed"]), event["error"])
        for event in events
        if event["kind"] == "push"
    )
    errors = tuple(dict.fromkeys(line.strip()[:400] for line in _lines(log) if any(text in line for text in ERRORS)))
    return RunRecord(problem, tuple(steps), pushes, errors, seconds, log)


def _group_means(batch: dict[str, Any]) -> Iterator[float]:
    groups = Counter(batch["groups"])
    for name, count in groups.items():
        yield sum(score for group, score in zip(batch["groups"], batch["scores"], strict=True) if group == name) / count


def _events(path: Path) -> Iterator[dict[str, Any]]:
    for line in _lines(path):
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _lines(path: Path) -> Iterator[str]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        while line := file.readline(MAX_LINE):
            yield line
