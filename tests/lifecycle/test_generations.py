"""``new`` beside other packages in stand-ins of three releases; with VERL_OMNI_SRC in real checkouts of them."""

from __future__ import annotations

import ast
import os
import py_compile
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import DOCS_INDEX, PACKAGE, REGISTRY, RELEASES, RUNNERS, snapshot, write_standin

from scaffold.spec import read_spec

pytestmark = pytest.mark.upstream
REAL = os.environ.get("VERL_OMNI_SRC", "")
NEW = ("new", "bagel_scaffold", "--pipeline", "BagelPipeline", "--verl-omni")
MINE = "verl_omni/pipelines/bagel_scaffold_flow_grpo"


@pytest.mark.parametrize("release", RELEASES)
def test_only_planned_files_change(written: dict[str, Path], tmp_path: Path, release: str) -> None:
    before, after = snapshot(write_standin(tmp_path / "before", release)), snapshot(written[release])
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {REGISTRY, RUNNERS[release], *([] if release == "v0.1.0" else [DOCS_INDEX])}
    added = {path for path in after.keys() - before.keys() if after[path] != "folder"}
    assert all("toy" in path or "flow_grpo_runtime/" in path for path in added)
    assert ("docs/examples/toy/flowgrpo_trainer_toy.md" in added) == (release != "v0.1.0")
    assert before[RUNNERS[release]][0] == after[RUNNERS[release]][0] == 0o755  # type: ignore[index]


@pytest.mark.parametrize("release", RELEASES)
def test_pin_and_profile_decide(written: dict[str, Path], release: str) -> None:
    spec = read_spec(written[release] / PACKAGE / "scaffold.toml").spec
    assert (spec.value("upstream.version"), spec.value("target.profile")) == (RELEASES[release], release)
    rollout = (written[release] / PACKAGE / "vllm_omni_rollout_adapter.py").read_text()
    assert ("more_steps=-1" in rollout) == (release == "v0.1.0")
    assert ("results.enveloped" in rollout) == (release == "main")


@pytest.mark.parametrize("release", RELEASES)
def test_everything_compiles_without_a_warning(written: dict[str, Path], tmp_path: Path, release: str) -> None:
    count = 0
    for path in written[release].rglob("*.py"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            py_compile.compile(str(path), cfile=str(tmp_path / "x.pyc"), doraise=True)
        count += 1
    assert count > 8


@pytest.mark.parametrize("release", RELEASES)
def test_scripts_and_registry_still_work(written: dict[str, Path], release: str) -> None:
    root = written[release]
    for path in root.rglob("*.sh"):
        assert subprocess.run(["bash", "-n", path], check=False).returncode == 0, path
    names = [
        alias.name
        for node in ast.parse((root / REGISTRY).read_text()).body
        if isinstance(node, ast.ImportFrom) and node.module is None
        for alias in node.names
    ]
    assert names == ["alpha_flow_grpo", "omega_flow_grpo", "toy_flow_grpo"]
    runner = (root / RUNNERS[release]).read_text()
    assert runner.count("bash tests/special_e2e/run_flowgrpo_toy.sh") == 1


def clone(release: str, root: Path) -> Path:
    reference = "HEAD" if release == "main" else release
    for arguments in (
        ("clone", "--quiet", "--shared", "--no-checkout", REAL, str(root)),
        ("-C", str(root), "checkout", "--quiet", "--detach", _commit(reference)),
    ):
        subprocess.run(["git", *arguments], check=True, capture_output=True)
    return root


def _commit(reference: str) -> str:
    command = ["git", "-C", REAL, "rev-parse", f"{reference}^{{commit}}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


real = pytest.mark.skipif(not REAL, reason="VERL_OMNI_SRC names no checkout of verl-omni")


@real
@pytest.mark.parametrize("release", RELEASES)
def test_real_checkout_is_as_it_was_after_remove(
    scaffold_cli: Callable[..., Any], tmp_path: Path, release: str
) -> None:
    root = clone(release, tmp_path / "checkout")
    before = snapshot(root)
    scaffold_cli(*NEW, root).success()
    command = ["-m", "compileall", "-q", MINE, "tests/pipelines", "tests/special_e2e", "examples/flowgrpo_trainer"]
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=root,
        env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONPYCACHEPREFIX": str(tmp_path / "pyc")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    scaffold_cli("remove", root / MINE).success()
    assert snapshot(root) == before


@real
@pytest.mark.parametrize(("before", "after"), [("v0.1.0", "v0.2.0"), ("v0.2.0", "main")])
def test_package_follows_a_real_checkout(
    scaffold_cli: Callable[..., Any], tmp_path: Path, before: str, after: str
) -> None:
    root = clone(before, tmp_path / "checkout")
    git = ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    scaffold_cli(*NEW, root).success()
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "package"], check=True)
    # A merge of releases is somebody's work; the hooks of the newer one win, and `update` makes them again.
    subprocess.run([*git, "merge", "--quiet", "-X", "theirs", "-m", "up", _commit(after)], check=True)
    scaffold_cli("update", root / MINE).success()
    expected = clone(after, tmp_path / "expected")
    scaffold_cli(*NEW, expected).success()
    found, wanted = snapshot(root), snapshot(expected)
    ours = {path for path in wanted if "bagel_scaffold" in path and "/scaffold." not in path}
    assert len(ours) > 12
    for path in [*ours, REGISTRY, RUNNERS[after], DOCS_INDEX]:
        assert found.get(path) == wanted[path], path
