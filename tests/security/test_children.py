"""What lies in the working directory is never run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import require

from scaffold.checkpoint import read_manifest
from scaffold.errors import ScaffoldError
from scaffold.files.resources import presets_root
from scaffold.limits import child_process
from scaffold.verify.child import devices
from scaffold.verify.loading import load_headers
from scaffold.verify.loading.run import write_headers
from scaffold.verify.rollout import environment

PLANTED = ("pip", "optparse", "torch", "json", "venv", "planted", "sitecustomize")


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose modules leave a mark when they run; it is the working directory."""
    folder = tmp_path / "strange"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'mark')!r}, 'a').write({name!r})\n")
    for name in ("pip", "git", "bash", "ruff"):
        (folder / name).write_text(f"#!/bin/sh\necho program >> {folder}/mark\n")
        (folder / name).chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep + os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize("version", ["0.1.1", "newest"])
def test_fetching(strange: Path, scaffold_cli: Callable[..., Any], version: str) -> None:
    scaffold_cli("inspect", "bagel", "--vllm-omni", version).refusal(2)
    assert not (strange / "mark").exists()


@pytest.fixture
def package(tmp_path: Path, reference: Path) -> Path:
    """A package, and a checkpoint beside it that it would load if its code let it."""
    root = tmp_path / "out"
    shutil.copytree(reference / "verl_omni", root / "verl_omni")
    write_headers(read_manifest(next((presets_root() / "manifests").glob("bagel*.json"))), tmp_path / "weights")
    return root


def test_loading_headers(strange: Path, package: Path, tmp_path: Path) -> None:
    require("torch")
    proof = load_headers(os.path.relpath(package), os.path.relpath(tmp_path / "weights"))
    assert "config.json" in proof.findings[0].message
    assert not (strange / "mark").exists()


def test_a_loader_sees_no_token(strange: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("torch")
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    monkeypatch.setenv("LANG", "seen")
    file = next(package.glob("verl_omni/pipelines/*/common.py"))
    file.write_text("import os\nraise ValueError(os.environ.get('HF_TOKEN', 'none'), os.environ['LANG'])\n")
    with pytest.raises(ScaffoldError, match="'none', 'seen'"):
        load_headers(package, tmp_path / "weights")


@pytest.mark.parametrize("last", ["sys.exit(0)", "os._exit(0)", "atexit.register(print, '[1]')"])
def test_a_package_that_ends_the_process_is_one_line(package: Path, tmp_path: Path, last: str) -> None:
    file = next(package.glob("verl_omni/pipelines/*/*_model.py"))
    file.write_text(f"import atexit, os, sys\n{last}\n")
    with pytest.raises(ScaffoldError) as error:
        load_headers(package, tmp_path / "weights")
    assert len(error.value.line.splitlines()) == 1


def test_building_an_environment(strange: Path) -> None:
    with pytest.raises(ScaffoldError, match="planted"):
        environment._run([sys.executable, "-m", "planted"])
    assert not (strange / "mark").exists()


def test_counting_devices(strange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.Path, "exists", lambda path: True)
    devices.gpu_count()
    monkeypatch.undo()
    assert not (strange / "mark").exists()


def test_programs_are_looked_up_elsewhere(strange: Path) -> None:
    assert child_process.run(["git", "--version"], seconds=20).stdout.startswith(b"git version")
    assert not (strange / "mark").exists()
    with pytest.raises(FileNotFoundError):
        child_process.run(["no-such-program"], seconds=20)


def test_python_path_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/one", "two", ""]))
    assert child_process.environment()["PYTHONPATH"] == f"/one{os.pathsep}{tmp_path / 'two'}"
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    assert "PYTHONPATH" not in child_process.environment()


@pytest.mark.parametrize("name", ["PATH", "LD_LIBRARY_PATH"])
def test_what_a_child_looks_up_is_not_in_its_folder(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, os.pathsep.join(["", "/one", "two", ".", "/three", ""]))
    assert child_process.environment()[name] == f"/one{os.pathsep}/three"
    monkeypatch.setenv(name, os.pathsep)
    assert name not in child_process.environment()


def test_a_child_is_ended_in_time() -> None:
    with pytest.raises(child_process.TookTooLong):
        child_process.run([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.1)


def test_cache_folder_of_the_users_may_be_relative(
    strange: Path, monkeypatch: pytest.MonkeyPatch, scaffold_cli: Callable[..., Any]
) -> None:
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", "cache")
    scaffold_cli("inspect", "bagel", "--vllm-omni", "0.1.1").refusal(2)
    assert (strange / "cache/wheels").is_dir()
