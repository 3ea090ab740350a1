"""Reads the results of a run: the trainer's metrics by step, the events of its processes, its log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.files.documents import parse_json
from scaffold.files.reading import read_lines

LOG_PROB = "rollout_corr/logprob_abs_diff_max"
REWARD = "critic/rewards/mean"
VALIDATED = "validated"  # below a run's folder: what validations made, as brightness.py keeps it
ROLLOUTS = "rollouts"  # below a run's folder: the trainer's rollout_data_dir
# What the numbers and tables of a line that no trainer wrote end in; one without an end is an arithmetic error.
NO_ENTRY = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError)
# Lines that a failed engine call leaves while the trainer goes on.
ERRORS = ("Error executing method", "failed on worker rank", "Error in _run_prompt")


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        number: from 1.
        metrics: what the trainer logged.
        rewards: mean score of each group of images of one prompt.
        windows: the sigmas of each sample's window; None where the batch did not hold them.
        closest: the smallest distance of two latents of a group and of two groups where their windows begin, over the
            median of all; None where there are no two.
        prompts: a digest of each group's prompt; None where the batch did not hold them.
    """

    number: int
    metrics: Mapping[str, float]
    rewards: tuple[float, ...] = ()
    windows: tuple[tuple[float, ...], ...] | None = None
    closest: tuple[float | None, float | None] | None = None
    prompts: tuple[str, ...] | None = None

    def metric(self, name: str) -> float:
        """A metric, NaN where the trainer did not log it."""
        return self.metrics.get(name, math.nan)


@dataclass(frozen=True)
class _Batch:
    """What an update was made of; fields as in `Step`."""

    step: int
    rewards: tuple[float, ...]
    windows: tuple[tuple[float, ...], ...] | None
    closest: tuple[float | None, float | None] | None
    prompts: tuple[str, ...] | None


@dataclass(frozen=True)
class Push:
    """One push of weights as one rank of the engine received it.

    Attributes:
        replica: of the engine.
        rank: in the replica.
        changed: tensors that differ after it.
        error: that it ended with.
        moved: parameters that lie elsewhere in memory after it.
    """

    replica: str
    rank: int
    changed: int
    error: str | None
    moved: int = 0


@dataclass(frozen=True)
class Sleep:
    """One sleep of one process of the engine; ``allocated``: bytes of torch's for it afterwards."""

    pid: int
    rank: int
    allocated: int


@dataclass(frozen=True)
class RunRecord:
    """One run.

    Attributes:
        problem: one line on why it did not end well, or None.
        steps: in order.
        pushes: in the order in which each process received them.
        errors: lines of the log in which a worker reported an error, each once.
        seconds: wall time.
        sleeps: of the engine, in the order of each process.
        log: file with all that was printed, kept where something went wrong.
        samples: of each step in the trainer's ``rollout_data_dir``; None where the run keeps none.
    """

    problem: str | None
    steps: tuple[Step, ...]
    pushes: tuple[Push, ...]
    errors: tuple[str, ...]
    seconds: float
    log: Path | None = None
    sleeps: tuple[Sleep, ...] = ()
    samples: Mapping[int, int] | None = None

    def series(self, name: str) -> list[float]:
        """A metric by step."""
        return [step.metric(name) for step in self.steps]


def read_metrics(path: Path) -> list[tuple[int, dict[str, float]]]:
    """Lines of verl's file logger; a last line that is still being written is left out."""
    found = []
    for line in _lines(path):
        try:
            entry = parse_json(line)
            data = {name: float(value) for name, value in entry["data"].items() if isinstance(value, int | float)}
            found.append((int(entry["step"]), data))
        except NO_ENTRY:
            continue
    return found


def read_record(
    folder: Path, log: Path, problem: str | None, seconds: float, rollouts: Path | None = None
) -> RunRecord:
    """Gather what a run left.

    Args:
        folder: with ``metrics.jsonl`` and the folder ``events``.
        log: what was printed.
        problem: why it did not end well.
        seconds: wall time.
        rollouts: the trainer's ``rollout_data_dir``; nothing is said of one that is not there.
    """
    batches: dict[int, _Batch] = {}
    pushes: list[Push] = []
    sleeps: list[Sleep] = []
    for path in sorted((folder / "events").glob("*.jsonl")):
        for event in _events(path):
            if isinstance(event, Push):
                pushes.append(event)
            elif isinstance(event, Sleep):
                sleeps.append(event)
            else:
                batches[event.step] = event
    # Validation before the first step is logged under 0 and is not training step.
    metrics = [
        (number, data) for number, data in read_metrics(folder / "metrics.jsonl") if "training/global_step" in data
    ]
    steps = []
    for number, data in metrics:
        batch = batches.get(number)
        of_batch = () if batch is None else (batch.rewards, batch.windows, batch.closest, batch.prompts)
        steps.append(Step(number, data, *of_batch))
    errors = tuple(dict.fromkeys(line.strip()[:400] for line in _lines(log) if any(text in line for text in ERRORS)))
    samples = None
    if rollouts is not None and rollouts.is_dir():
        samples = {int(path.stem): _samples(path) for path in rollouts.glob("[0-9]*.jsonl")}
    return RunRecord(problem, tuple(steps), tuple(pushes), errors, seconds, log, tuple(sleeps), samples)


def _samples(path: Path) -> int:
    """Lines of the trainer's table of one step whose image is there and that have a finite score."""
    found = 0
    for line in _lines(path):
        try:
            entry = parse_json(line)
            found += math.isfinite(float(entry["score"])) and Path(entry["output"]).stat().st_size > 0
        except (*NO_ENTRY, OSError):
            continue
    return found


def _events(path: Path) -> Iterator[_Batch | Push | Sleep]:
    """Return the events of one process, without invalid lines and a truncated last line."""
    for line in _lines(path):
        try:
            event = parse_json(line)
            if event["kind"] == "batch":
                yield _batch(event)
            elif event["kind"] == "push":
                error = None if event["error"] is None else str(event["error"])
                moved = int(event.get("moved", 0))
                yield Push(str(event["replica"]), int(event["rank"]), int(event["changed"]), error, moved)
            elif event["kind"] == "sleep":
                yield Sleep(int(event["pid"]), int(event["rank"]), int(event["allocated"]))
        except NO_ENTRY:
            continue


def _batch(event: dict[str, Any]) -> _Batch:
    """Mean score and prompt of each group, windows and distances."""
    scores: dict[str, list[float]] = {}
    for group, score in zip(event["groups"], event["scores"], strict=True):
        scores.setdefault(str(group), []).append(float(score))
    windows, closest, prompts = event["windows"], event["closest"], event["prompts"]
    of_group = dict(zip(map(str, event["groups"]), map(str, prompts or ()), strict=False))
    within, across = (None, None) if closest is None else (closest["within"], closest["across"])
    return _Batch(
        int(event["step"]),
        tuple(sum(group) / len(group) for group in scores.values()),
        None if windows is None else tuple(tuple(map(float, sample)) for sample in windows),
        None if within is across is None else tuple(None if v is None else float(v) for v in (within, across)),  # type: ignore[arg-type]
        tuple(of_group.values()) or None,
    )


def _lines(path: Path) -> Iterator[str]:
    with suppress(FileNotFoundError):
        yield from read_lines(path)
