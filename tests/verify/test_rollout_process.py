"""The level without an engine: limits of the process, reasons of what could not be measured, facts that drive it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.package import open_package
from scaffold.verify.request import VerifyRequest
from scaffold.verify.rollout.environment import OVERRIDE, Environment
from scaffold.verify.rollout.facts import gather_facts
from scaffold.verify.rollout.level import VERSION, package_version, run_level
from scaffold.verify.rollout.process import run_process
from scaffold.verify.run import verify

Fake = Callable[[str], Environment]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Return a function that makes an environment whose interpreter is a shell script."""

    def make(script: str) -> Environment:
        folder = tmp_path / "environment"
        (folder / "bin").mkdir(parents=True)
        python = folder / "bin" / "python"
        python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        python.chmod(0o755)
        return Environment(folder, "1.0")

    return make


@pytest.fixture
def package(reference: Path) -> Path:
    return next(reference.glob("verl_omni/pipelines/*/scaffold.toml")).parent


def ending(environment: Environment, tmp_path: Path, **limits: float) -> str | None:
    task = tmp_path / "task.json"
    task.write_text("{}")
    return run_process(environment, task, tmp_path / "log", profile="main", **limits).problem


def test_process_that_ends_well_has_no_problem(fake: Fake, tmp_path: Path) -> None:
    assert ending(fake("exit 0"), tmp_path) is None


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            "echo noise; echo 'ValueError: the last line' >&2; exit 3",
            "over with exit code 3; its last line: ValueError",
        ),
        ("kill -9 $$", "killed by SIGKILL, perhaps out of memory; its last line: it printed nothing"),
    ],
)
def test_dead_process_is_told_by_its_last_line(fake: Fake, tmp_path: Path, script: str, told: str) -> None:
    assert told in str(ending(fake(script), tmp_path))


def test_process_is_stopped_in_time(fake: Fake, tmp_path: Path) -> None:
    assert "stopped after 1 s; its last line: begun" in str(ending(fake("echo begun; sleep 60"), tmp_path, seconds=0.6))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell how much memory is held")
def test_process_is_stopped_when_it_holds_too_much(fake: Fake, tmp_path: Path) -> None:
    code = "import time; held = bytearray(300 << 20); held[::4096] = bytes(len(held[::4096])); time.sleep(60)"
    script = f'exec "{sys.executable}" -c "{code}"'
    assert "MB of memory, 100 are allowed" in str(ending(fake(script), tmp_path, megabytes=100, seconds=30))


def test_process_sees_only_what_it_needs(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert ending(fake("env; exit 0"), tmp_path) is None
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "log").read_text().splitlines())
    assert "PYTHONPATH" not in seen
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    assert seen["OMNI_SCAFFOLD_ROLLOUT_ON_CPU"] == "1"


def test_level_without_its_environment_is_wrong_use_before_any_contract_runs(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scaffold_cli: Callable[..., Any]
) -> None:
    from scaffold.verify import run as command

    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path))
    monkeypatch.delenv(OVERRIDE, raising=False)
    monkeypatch.delenv(VERSION, raising=False)
    monkeypatch.setattr(command, "run_contract_level", lambda *_: pytest.fail("the contracts ran"))
    assert scaffold_cli("verify", package, "--level", "rollout").refusal() == (
        "level rollout cannot run: the rollout environment of vllm-omni 0.27.0rc1 is not built;"
        " run: omni-scaffold env rollout --vllm-omni 0.27.0rc1"
    )


def test_version_without_a_description_names_the_command_that_finds_one(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(OVERRIDE, raising=False)
    monkeypatch.setenv(VERSION, "0.1.0")
    with pytest.raises(
        ScaffoldError, match=r"of vllm-omni 0\.1\.0 is not built; run: omni-scaffold env rollout --vllm-omni 0\.1\.0$"
    ):
        run_level(VerifyRequest(package, level="rollout", select=("rollout-independent-noise",)))


def test_selection_of_another_level_runs_nothing(package: Path) -> None:
    assert run_level(VerifyRequest(package, level="rollout", select=("padding-invariance",))).checks == []


def test_dead_engine_is_a_failed_check(
    fake: Fake, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = fake("echo 'File one, line 2'; echo 'RuntimeError: no engine'; exit 1")
    monkeypatch.setenv(OVERRIDE, str(environment.folder))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    outcome = run_level(VerifyRequest(package, level="rollout", select=("rollout-independent-noise",)))
    assert outcome.environment == {}
    results = {result.id: result for result in outcome.checks}
    assert results["rollout-engine-float32"].status == "fail"
    reason, _, kept = results["rollout-engine-float32"].reason.partition("; all it printed: ")
    assert reason.endswith("its last line: RuntimeError: no engine")
    assert Path(kept).read_text() == "File one, line 2\nRuntimeError: no engine\n"
    assert [str(path) for path in (tmp_path / "temporary").iterdir()] == [kept], "only the log stays"
    assert results["rollout-independent-noise"].status == "skip"
    assert results["rollout-independent-noise"].reason == "the process ended before this was measured"
    assert len(results) == 2


RAISES = """
import json, sys
task = json.load(open(sys.argv[-1]))
with open(task["results"], "w") as results:
    measured = {"check": task["checks"][0], "value": None, "reason": "KeyError: x", "floor": None, "limit": None,
                "series": None, "skipped": False, "seconds": 0.0, "raised": True}
    for event in ({"event": "started", "versions": {"torch": "9.9"}}, {"event": "measured", **measured}):
        results.write(json.dumps(event) + "\\n")
print("Traceback of the scenario")
"""


def test_a_scenario_that_raises_names_its_traceback_and_the_engine_is_in_the_environment(
    fake: Fake, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "raises.py"
    script.write_text(RAISES)
    monkeypatch.setenv(OVERRIDE, str(fake(f'exec {sys.executable} {script} "$@"').folder))
    monkeypatch.delenv("VERL_OMNI_SRC", raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    report = verify(package, level="rollout", select=["rollout-independent-noise"])
    (result,) = report.checks
    assert result.status == "fail"
    reason, _, kept = result.reason.partition("; traceback: ")
    assert (reason, Path(kept).read_text()) == ("KeyError: x", "Traceback of the scenario\n")
    expected = {"torch": "9.9", "verl_omni is": "kit", "verl is": "kit", "vllm_omni is": "real"}
    assert report.environment == expected


def test_where_the_levels_differ_the_environment_says_both(monkeypatch: pytest.MonkeyPatch, package: Path) -> None:
    from scaffold.verify import run
    from scaffold.verify.result import Outcome
    from scaffold.verify.rollout import level

    there, here = {"vllm_omni is": "real", "torch": "2"}, {"vllm_omni is": "kit", "torch": "2", "python": "3"}
    monkeypatch.setattr(level, "require", lambda request, scratch: None)
    monkeypatch.setattr(level, "run_level", lambda request, tell: Outcome([], there))
    monkeypatch.setattr(run, "run_contract_level", lambda opened, request, tell: Outcome(environment=here))
    found = verify(package, level="rollout").environment
    assert found == {"vllm_omni is": "real (rollout), kit (contract)", "torch": "2", "python": "3"}


def test_package_without_a_builder_is_refused_with_the_reason(
    fake: Fake, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "verl_omni" / "pipelines" / package.name
    shutil.copytree(package, copy)
    monkeypatch.setenv(OVERRIDE, str(fake("exit 0").folder))
    with pytest.raises(ScaffoldError, match=r"tests/special_e2e/build_bagel_tiny_random\.py is missing; give --check"):
        run_level(VerifyRequest(copy, level="rollout"))


def test_facts_come_from_the_spec(package: Path, tmp_path: Path) -> None:
    opened = open_package(package)
    assert package_version(opened) == "0.27.0rc1"
    found = gather_facts(opened, Environment(tmp_path, "0.27.0rc1"))
    assert found["pixels_per_token"] == 16
    assert found["guidance"] == {"name": "cfg_text_scale", "scale": 4.0}
    assert found["prompt"]["begin"] == "<|im_start|>"
    assert found["prompt"]["end"] == "<|im_end|>"
    assert found["lora"]["sync"] == "fold"
    assert "q_proj_moe_gen" in found["lora"]["targets"]


@pytest.mark.upstream
def test_facts_of_a_hand_written_package_are_those_of_its_pipeline(package: Path, tmp_path: Path) -> None:
    """The same package without its scaffold.toml and its launch script."""
    import zipfile

    from scaffold.upstream.fetch import fetch_wheel

    copy = tmp_path / "verl_omni" / "pipelines" / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("scaffold.toml", "scaffold.lock.toml"))
    libraries = tmp_path / "lib" / "python3.11" / "site-packages"
    with zipfile.ZipFile(fetch_wheel("vllm-omni", "0.27.0rc1")) as wheel:
        wheel.extractall(libraries, [name for name in wheel.namelist() if name.endswith(".py")])
    environment = Environment(tmp_path, "0.27.0rc1")
    written, told = gather_facts(open_package(copy), environment), gather_facts(open_package(package), environment)
    assert written["lora"] == {"targets": [], "sync": None}
    for name in ("pixels_per_token", "noise_level", "prompt", "guidance"):
        assert written[name] == told[name]
