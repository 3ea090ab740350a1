"""A script of the tests that runs in the environment of the real vllm-omni, and what it answers."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from scaffold.verify.rollout.environment import find_environment
from scaffold.verify.rollout.process import PASSED_ON, VARIABLES, start_process

Answers = dict[str, dict[str, Any]]


def engine_version_is_there(version: str) -> None:
    """Skip the test where the environment of a version is not built."""
    environment = find_environment(version)
    if isinstance(environment, str):
        pytest.skip(environment)


def answers(version: str, script: Path, tasks: list[dict[str, Any]], folder: Path, *, name: str = "case") -> Answers:
    """Run all tasks in one process and return its answers by their names.

    Args:
        version: of vllm-omni; its environment must be built.
        script: gets a file with the tasks, and prints ``RESULT`` and a JSON object for each.
        tasks: what it is told.
        folder: where it runs.
        name: key of an answer under which it is returned.
    """
    environment = find_environment(version)
    assert not isinstance(environment, str), environment
    file = folder / "tasks.json"
    file.write_text(json.dumps(tasks), encoding="utf-8")
    variables = {**{key: os.environ[key] for key in PASSED_ON if key in os.environ}, **VARIABLES}
    log = folder / "log"
    process = start_process(environment, [str(script), str(file)], variables, log)
    deadline = time.monotonic() + 600
    while process.poll() is None:
        if time.monotonic() > deadline:
            os.kill(process.pid, signal.SIGKILL)
            raise TimeoutError(f"{script.name} takes more than 600 s")
        time.sleep(0.1)
    printed = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.removeprefix("RESULT ") for line in printed.splitlines() if line.startswith("RESULT ")]
    assert lines, printed[-2000:]
    return {entry[name]: entry for entry in map(json.loads, lines)}
