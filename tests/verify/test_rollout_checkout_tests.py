"""The tests that a verl-omni checkout has for its pipelines, with a rendered package beside the hand-written ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.verify.rollout.environment import find_environment
from scaffold.verify.rollout.platform.omni_scaffold_cpu import VARIABLE

VERL_OMNI = os.environ.get("VERL_OMNI_SRC", "")
VERSION = "0.27.0rc1"
# What tests/pipelines of main holds without a rendered package.
OWN_TESTS = 168
pytestmark = [
    pytest.mark.skipif(not VERL_OMNI, reason="VERL_OMNI_SRC names no verl-omni checkout"),
    pytest.mark.rollout,
    pytest.mark.slow,
]


def test_tests_of_the_checkout_pass_beside_a_rendered_package(tmp_path: Path, scaffold_cli: Callable[..., Any]) -> None:
    environment = find_environment(VERSION)
    if isinstance(environment, str):
        pytest.skip(environment)
    checkout = tmp_path / "verl-omni"
    shutil.copytree(VERL_OMNI, checkout, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    scaffold_cli("new", "bagel_scaffold", "--pipeline", "BagelPipeline", "--verl-omni", checkout).success()

    # The environment of the rollout has no test runner of its own.
    runner = tmp_path / "runner"
    install = [environment.python, "-m", "pip", "install", "--quiet", "--target", runner, "pytest", "pytest-asyncio"]
    subprocess.run([*map(str, install)], check=True, capture_output=True)
    path = os.pathsep.join(map(str, (runner, Path(__file__).parent, Path(__file__).parents[2], checkout)))
    settings = {
        "PYTHONPATH": path,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    settings[VARIABLE] = "1"
    command = [environment.python, "-m", "pytest", "-q", "tests/pipelines", "-p", "own_tests_plugin"]
    command += ["-p", "no:cacheprovider", "--junitxml", tmp_path / "report.xml"]
    run = subprocess.run(
        [*map(str, command)], cwd=checkout, env={**os.environ, **settings}, capture_output=True, text=True, timeout=1200
    )
    last = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr[-2000:]
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    own = _passed(tmp_path / "report.xml", lambda name: "bagel_scaffold" not in name)
    rendered = _passed(tmp_path / "report.xml", lambda name: "bagel_scaffold" in name)
    print(last, file=sys.stderr)
    assert own >= OWN_TESTS, last
    assert rendered > 80, last


def _passed(report: Path, chosen: Callable[[str], bool]) -> int:
    cases = re.findall(r'<testcase classname="([^"]*)"[^>]*?(/>|>.*?</testcase>)', report.read_text(), re.DOTALL)
    return sum(chosen(name) and "<skipped" not in body for name, body in cases)
