"""`doctor --package`: whether verl-omni would find a package in this environment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from warm_python import WarmPython

from scaffold.files.resources import kit_root, runtime_root

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def project(scaffold_cli: Callable[..., Any], reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("doctor") / "out"
    scaffold_cli("move", reference, "--out", out).success()
    return out


def findings(scaffold_cli: Callable[..., Any], project: Path) -> tuple[int, list[dict[str, Any]]]:
    outcome = scaffold_cli("doctor", "--package", project / "src/bagel_flow_grpo", "--format", "json")
    return outcome.code, json.loads(outcome.out)["findings"]


def test_a_package_that_is_not_installed(project: Path, scaffold_cli: Callable[..., Any]) -> None:
    code, (package, *scripts) = findings(scaffold_cli, project)
    assert (code, package["state"], package["mend"]) == (0, "absent", f"pip install -e {project}")
    assert [script["state"] for script in scripts] == ["ok", "ok"]


def test_a_package_that_reaches_both_registries(
    project: Path, scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = (kit_root(), project / "src", runtime_root().parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, places)))
    code, (package, *_) = findings(scaffold_cli, project)
    assert (code, package["state"]) == (0, "ok")
    assert "registered as OmniBagelForConditionalGeneration/flow_grpo on both sides" in package["found"]


def test_a_package_without_its_rollout_adapter_and_a_script_without_its_key(
    project: Path, scaffold_cli: Callable[..., Any], warm_python: WarmPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_fork(command: list[str], *, seconds: float, cwd: Path) -> Any:
        assert command[0] == sys.executable
        return warm_python(command[1:], cwd=cwd, timeout=seconds)

    monkeypatch.setattr("scaffold.doctor.package.child_process.run_text", in_fork)
    start, script = project / "src/bagel_flow_grpo/__init__.py", project / "tests/smoke/run_flowgrpo_bagel.sh"
    kept = start.read_text(), script.read_text()
    start.write_text("from .diffusers_training_adapter import BagelDiffusion\n")
    script.write_text(kept[1].replace("    actor_rollout_ref.rollout.external_lib=bagel_flow_grpo\n", ""))
    places = (kit_root(), project / "src", runtime_root().parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, places)))
    try:
        code, (package, *scripts) = findings(scaffold_cli, project)
    finally:
        start.write_text(kept[0])
        script.write_text(kept[1])
    assert (code, package["state"]) == (1, "wrong")
    assert package["problem"] == "registers no rollout adapter"
    assert "rollout.external_lib" in scripts[1]["problem"]


def test_an_environment_without_verl_omni(
    project: Path, scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (project / "src", runtime_root().parent))))
    code, (package, *_) = findings(scaffold_cli, project)
    assert (code, package["state"]) == (0, "absent")
    assert "verl_omni is not installed" in package["problem"]
