"""A script of the tests that runs in the environment of the real vllm-omni, and what it answers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scaffold.verify.rollout.environment import find_environment
from scaffold.verify.rollout.process import PASSED_ON, VARIABLES

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
    done = subprocess.run(
        [str(environment.python), str(script), str(file)],
        env={**{key: os.environ[key] for key in PASSED_ON if key in os.environ}, **VARIABLES},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-2000:]
    return {entry[name]: entry for entry in map(json.loads, lines)}
