"""The page goes from files that no release has to a package with all contracts passed, and says what really happens."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import page

pytestmark = pytest.mark.upstream


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, columns in page.WIDE.items():
        monkeypatch.setenv(name, columns)
    return page.prepare(tmp_path)


def test_the_page_is_what_the_commands_print(folder: Path, scaffold_cli: Callable[..., Any]) -> None:
    def run(*words: str) -> str:
        return str(scaffold_cli(*words, cwd=folder).success())

    written = page.DOCUMENT.read_text(encoding="utf-8")
    known = page.outputs_in(written)
    found = page.run_road(folder, run, page.FAST)
    assert written == page.page({**known, **found}, page.version_of(folder))


def test_an_edited_pipeline_and_a_newer_release_are_followed(
    folder: Path, scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scaffold_cli(*f"{page.NEW} --patch --out build/kiln".split(), cwd=folder).success()
    newer = scaffold_cli("drift", page.PACKAGE, "--to", "0.32.0rc1", cwd=folder).success()
    assert "kiln.pipeline_kiln:KilnPipeline" in newer
    assert "nothing to do" in newer
    file = folder / "kiln/pipeline_kiln.py"
    file.write_text(file.read_text().replace("num_inference_steps or 24", "num_inference_steps or 28"))
    before = page.version_of(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(page.HERE)])  # another copy of it
    scaffold_cli("update", page.PACKAGE, cwd=folder).success()  # from the folder that one stands in
    between = page.version_of(folder)
    assert between != before
    assert "num_inference_steps or 28" in (folder / page.PACKAGE / "kiln_loop.py").read_text()
    file.write_text(file.read_text().replace("num_inference_steps or 28", "num_inference_steps or 32"))
    monkeypatch.syspath_prepend(str(folder))
    scaffold_cli("update", folder / page.PACKAGE, cwd=tmp_path).success()  # from the path of Python
    assert page.version_of(folder) not in (before, between)


def test_what_inspect_names_next_works_for_an_own_pipeline(folder: Path, scaffold_cli: Callable[..., Any]) -> None:
    """No checkout pins such a version, and the pipeline is found where it was named."""
    said = scaffold_cli("inspect", page.OWN, "--vllm-omni", "0.30.0", cwd=folder).success()
    (named,) = re.findall(r"next: `omni-scaffold ([^`]+)`", said)
    shown = scaffold_cli("inspect", page.OWN, "--vllm-omni", "0.30.0", "--show", "cfg.scales", cwd=folder).success()
    assert "pipeline_kiln.py" in shown
    command = named.replace("MODEL", "kiln").replace("DIR", "build/named")
    assert "kiln_flow_grpo" in scaffold_cli(*shlex.split(command), cwd=folder).success()


def test_a_checkpoint_in_a_layout_of_its_own_is_loaded_or_refused(
    folder: Path, scaffold_cli: Callable[..., Any]
) -> None:
    """Of a pipeline that is in no release nobody has a list of tensors: where the loader ends, the package does not
    fit."""
    (folder / "checkpoint/config.json").unlink()
    words = f"{page.NEW} --checkpoint checkpoint --patch --out build/kiln".split()
    refused = scaffold_cli(*words, cwd=folder).refusal(1)
    assert "before it opens a file of weights, the loader ends with FileNotFoundError" in refused
    assert not (folder / "build").exists()


@pytest.mark.rollout
def test_all_contracts_pass_at_the_end_of_the_road(folder: Path, scaffold_cli: Callable[..., Any]) -> None:
    def run(*words: str) -> str:
        done = scaffold_cli(*words, cwd=folder)
        assert done.code == 0, done.out + done.err
        return str(done.out)

    known = page.outputs_in(page.DOCUMENT.read_text(encoding="utf-8"))
    found = page.run_road(folder, run, (page.RENDER, *page.SLOW))
    assert found.items() <= known.items()
    assert " 0 fail, " in found[page.VERIFY[0]]


@pytest.mark.rollout
@pytest.mark.rollout_table
def test_a_second_pipeline_agrees_with_its_rollout_with_nothing_written(
    folder: Path, scaffold_cli: Callable[..., Any]
) -> None:
    """A clean prediction, clamped levels, a root in their shift, two encoders, guidance renormed in an interval."""
    package = second(folder, scaffold_cli)
    passed = verified(scaffold_cli, package, "rollout")
    assert {"rollout-sde-log-prob", "rollout-cps-log-prob", "rollout-other-weights", "rollout-formula"} <= passed
    seen = (package / "formula.txt").read_text()
    assert all(line in seen for line in page.SEEN.splitlines())


@pytest.mark.train_table
def test_the_second_pipeline_trains_saves_resumes_and_is_exported(
    folder: Path, scaffold_cli: Callable[..., Any]
) -> None:
    passed = verified(scaffold_cli, second(folder, scaffold_cli), "train", "--steps", "3")
    assert {"train-log-prob", "train-log-prob-after", "train-push", "train-validation", "train-export"} <= passed


def second(folder: Path, scaffold_cli: Callable[..., Any]) -> Path:
    """Render the second pipeline's package, and build the environment that holds its pipeline."""
    scaffold_cli(*shlex.split(page.OTHER[0]), cwd=folder).success()
    package = folder / "build/ember/verl_omni/pipelines/ember_flow_grpo"
    version = re.search(r"0\.30\.0\+ember\.g[0-9a-f]{8}", (package / "scaffold.lock.toml").read_text())
    assert version is not None
    assert scaffold_cli("env", "rollout", "--vllm-omni", version[0], cwd=folder).code == 0
    return package


def verified(scaffold_cli: Callable[..., Any], package: Path, level: str, *more: str) -> set[str]:
    """Names of the checks of a level that pass; none fails."""
    flags = ("--checkpoint", "ember_checkpoint", "--level", level, "--format", "json", *more)
    done = scaffold_cli("verify", package, *flags, cwd=package.parents[4])
    assert done.out, done.err
    checks = json.loads(done.out)["checks"]
    assert {check["id"]: check["reason"] for check in checks if check["status"] == "fail"} == {}
    return {check["id"] for check in checks if check["status"] == "pass"}
