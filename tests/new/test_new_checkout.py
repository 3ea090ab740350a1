"""``--verl-omni``: into a real checkout of each release. Runs where ``VERL_OMNI_SRC`` names a clone of verl-omni."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scaffold.render.runtime import FOLDER

SOURCE = os.environ.get("VERL_OMNI_SRC", "")
pytestmark = [
    pytest.mark.upstream,
    pytest.mark.skipif(not SOURCE, reason="VERL_OMNI_SRC names no checkout of verl-omni"),
]
PINS = {"v0.1.0": "0.22.0", "v0.2.0": "0.24.0", "main": "0.27.0rc1"}
ARGUMENTS = ("new", "bagel_scaffold", "--pipeline", "BagelPipeline", "--verl-omni")
PACKAGE = "verl_omni/pipelines/bagel_scaffold_flow_grpo"
RENDERED = {
    *(f"{PACKAGE}/{name}.py" for name in ("__init__", "bagel_scaffold_model", "common")),
    *(f"{PACKAGE}/{name}" for name in ("diffusers_training_adapter.py", "vllm_omni_rollout_adapter.py")),
    *(f"{PACKAGE}/scaffold.{half}" for half in ("toml", "lock.toml")),
    "examples/flowgrpo_trainer/data_process/bagel_scaffold_ocr.py",
    "examples/flowgrpo_trainer/bagel_scaffold/README.md",
    "examples/flowgrpo_trainer/bagel_scaffold/run_bagel_scaffold_ocr_lora.sh",
    "examples/flowgrpo_trainer/bagel_scaffold/bagel_scaffold_deploy_config.yaml",
    "tests/pipelines/test_bagel_scaffold_flow_grpo_on_cpu.py",
    "tests/special_e2e/bagel_scaffold_brightness.py",
    "tests/special_e2e/build_bagel_scaffold_tiny_random.py",
    "tests/special_e2e/create_dummy_bagel_scaffold_data.py",
    "tests/special_e2e/run_flowgrpo_bagel_scaffold.sh",
}
LINK = "docs/examples/bagel_scaffold/flowgrpo_trainer_bagel_scaffold.md"
RUNNERS = {
    "v0.1.0": "tests/gpu_smoke/run_gpu_smoke_tests.sh",
    "v0.2.0": "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh",
    "main": "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh",
}


@dataclass(frozen=True)
class Clone:
    """A clone that `new` has written into, and what the command printed."""

    release: str
    root: Path
    pristine: Path
    printed: str

    @property
    def rendered(self) -> set[str]:
        """What is rendered for the release; where the engine asks no adapter for a fold, a worker class does."""
        worker = {f"{PACKAGE}/vllm_omni_worker_extension.py"} if self.release == "v0.2.0" else set()
        return RENDERED | worker | reached(self.root)

    def git(self, *arguments: str) -> str:
        """Return the output of a git command in the clone."""
        return git(self.root, *arguments)


def reached(root: Path) -> set[str]:
    """Return the modules of the runtime that package and scripts name, and those that these import."""
    scripts = "".join((root / path).read_text(encoding="utf-8") for path in RENDERED if path.endswith(".sh"))
    found = {f"{FOLDER}/{name}.py" for name in re.findall(r"flow_grpo_runtime[./](\w+)", scripts)}
    waiting = [*sorted((root / PACKAGE).glob("*.py")), *(root / file for file in found)]
    while waiting:
        for node in ast.walk(ast.parse(waiting.pop().read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                files = {f"{FOLDER}/{name}.py" for name in names if (root / FOLDER / f"{name}.py").is_file()}
                waiting += [root / file for file in files - found]
                found |= files
    return {*found, f"{FOLDER}/__init__.py"}


def git(root: Path, *arguments: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout


def clone_of(release: str, root: Path) -> Path:
    """Clone the checkout at a release; objects are shared, so the original must stay and is only read."""
    reference = "HEAD" if release == "main" else release
    commit = git(Path(SOURCE), "rev-parse", f"{reference}^{{commit}}").strip()
    git(Path(SOURCE), "clone", "--quiet", "--shared", "--no-checkout", SOURCE, str(root))
    git(root, "checkout", "--quiet", "--detach", commit)
    return root


@pytest.fixture(scope="module", params=list(PINS))
def clone(
    request: pytest.FixtureRequest, scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Clone:
    """Return a clone of one release with the package in it, and one without."""
    folder = tmp_path_factory.mktemp("clones")
    root = clone_of(request.param, folder / "written")
    printed = scaffold_cli(*ARGUMENTS, root).success()
    return Clone(request.param, root, clone_of(request.param, folder / "pristine"), printed)


def test_pin_and_profile_are_the_checkouts(clone: Clone) -> None:
    first = clone.printed.splitlines()[0]
    assert f"vllm-omni {PINS[clone.release]} " in first
    assert first.endswith(f"verl-omni {clone.release}")
    (note,) = [line for line in clone.printed.splitlines() if line.startswith("note:")]
    assert note.startswith("note: the checkout has a package of its own for BagelPipeline: bagel_flow_grpo ")
    assert ("folds LoRA, there the engine's manager gets LoRA" in note) == (clone.release != "v0.1.0")


def test_only_the_planned_files_changed(clone: Clone) -> None:
    status = clone.git("status", "--porcelain", "--untracked-files=all", "--ignored").splitlines()
    docs = {"docs/index.md"} if clone.release != "v0.1.0" else set()
    links = {LINK} if clone.release != "v0.1.0" else set()
    assert {line[3:] for line in status if line[:2] == " M"} == {
        *("verl_omni/pipelines/__init__.py", RUNNERS[clone.release]),
        *docs,
        *({"tests/gpu_smoke/select_gpu_smoke_groups.py"} if clone.release != "v0.1.0" else set()),
        *({"docs/start/models.md"} if clone.release == "main" else set()),  # of older pins nothing is proved
    }
    assert {line[3:] for line in status if line[:2] == "??"} == clone.rendered | links
    assert not [line for line in status if line[:2] not in (" M", "??")]
    if links:
        assert (clone.root / LINK).is_symlink()
        assert (clone.root / LINK).resolve() == clone.root / "examples/flowgrpo_trainer/bagel_scaffold/README.md"
    clone.git("diff", "--check")


def test_second_run_changes_nothing(clone: Clone, scaffold_cli: Callable[..., Any]) -> None:
    before = clone.git("diff")
    assert "nothing to do" in scaffold_cli(*ARGUMENTS, clone.root).success()
    assert clone.git("diff") == before


def test_registry_has_exactly_the_three_edits(clone: Clone) -> None:
    diff = clone.git("diff", "--unified=0", "--", "verl_omni/pipelines/__init__.py").splitlines()
    changed = [line for line in diff if line[0] in "+-" and not line.startswith(("+++", "---"))]
    assert changed == [
        "+    bagel_scaffold_flow_grpo,",
        "+from .bagel_scaffold_flow_grpo import *  # noqa: F401, F403",
        "+__all__ += list(bagel_scaffold_flow_grpo.__all__)",
    ]


def test_runner_calls_the_script_under_a_new_number(clone: Clone) -> None:
    runner = clone.root / RUNNERS[clone.release]
    assert subprocess.run(["bash", "-n", runner], check=False).returncode == 0
    diff = clone.git("diff", "--unified=0", "--", RUNNERS[clone.release])
    assert "bash tests/special_e2e/run_flowgrpo_bagel_scaffold.sh" in diff
    added = [line for line in diff.splitlines() if line.startswith(("+run_test ", "+run_selected_test "))]
    assert len(added) == 1
    number = added[0].split()[1]
    before = (clone.pristine / RUNNERS[clone.release]).read_text()
    assert f"run_test {number} " not in before
    assert f"run_selected_test {number} " not in before
    assert os.access(runner, os.X_OK) == os.access(clone.pristine / RUNNERS[clone.release], os.X_OK)


SANITY = [
    ("check_license.py", "--directories", "."),
    ("check_docs_time_info.py",),
    ("check_docstrings.py",),
    ("check_device_api_usage.py", "--directory", PACKAGE),
    ("check_dataproto_usage.py", "-d", PACKAGE),
    ("validate_structure.py",),
    ("check_example_docs_symlinks.py",),
]


@pytest.fixture
def tracked(clone: Clone) -> Iterator[None]:
    """Put everything into git's index for the test: some checks of the repository look at tracked files only."""
    clone.git("add", "--all")
    yield
    clone.git("reset", "--quiet")


@pytest.mark.usefixtures("tracked")
@pytest.mark.parametrize("command", SANITY, ids=lambda command: command[0])
def test_repositorys_own_check_passes(clone: Clone, command: tuple[str, ...]) -> None:
    script = clone.root / "tests/special_sanity" / command[0]
    if not script.exists():
        pytest.skip(f"{clone.release} has no {command[0]}")
    done = subprocess.run(
        [sys.executable, script, *command[1:]], cwd=clone.root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


@pytest.mark.usefixtures("tracked")
def test_repositorys_own_check_can_fail(clone: Clone) -> None:
    path = clone.root / PACKAGE / "common.py"
    text = path.read_text()
    try:
        path.write_text("VALUE = 1\n")
        script = clone.root / "tests/special_sanity/check_license.py"
        done = subprocess.run(
            [sys.executable, script, "--directories", "."], cwd=clone.root, capture_output=True, check=False
        )
        assert done.returncode != 0
    finally:
        path.write_text(text)


def test_spelling_check_of_the_repository(clone: Clone) -> None:
    for pattern in ("veRL", "Sglang|sgLang|sglAng|sglaNg|sglanG"):
        found = subprocess.run(
            ["grep", "-rIlE", pattern, PACKAGE, "examples/flowgrpo_trainer", "tests/pipelines", "tests/special_e2e"],
            cwd=clone.root,
            capture_output=True,
            text=True,
            check=False,
        ).stdout.splitlines()
        assert not [path for path in found if "bagel_scaffold" in path]


def test_ruff_under_the_repositorys_own_settings(clone: Clone) -> None:
    files = sorted(path for path in RENDERED if path.endswith(".py"))
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", *files, "verl_omni/pipelines/__init__.py"],
            cwd=clone.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_edited_file_is_a_conflict_and_nothing_is_written(clone: Clone, scaffold_cli: Callable[..., Any]) -> None:
    path, other = clone.root / PACKAGE / "common.py", clone.root / PACKAGE / "__init__.py"
    text, init = path.read_text(), other.read_text()
    try:
        path.write_text(text + "# mine\n")
        other.unlink()
        line = scaffold_cli(*ARGUMENTS, clone.root).refusal(4)
        assert "common.py" in line
        assert path.read_text() == text + "# mine\n"
        assert not other.exists()
    finally:
        path.write_text(text)
        other.write_text(init)


def test_model_that_the_repository_has_is_a_conflict(clone: Clone, scaffold_cli: Callable[..., Any]) -> None:
    before = git(clone.pristine, "status", "--porcelain", "--ignored")
    line = scaffold_cli("new", "bagel", "--verl-omni", clone.pristine).refusal(4)
    assert "verl_omni/pipelines/bagel_flow_grpo/" in line
    assert git(clone.pristine, "status", "--porcelain", "--ignored") == before == ""


def test_patch_made_without_a_checkout_applies_to_one(
    clone: Clone, scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ("--profile", clone.release, "--patch", "--out", out)
    scaffold_cli("new", "bagel_scaffold", "--pipeline", "BagelPipeline", *options).success()
    git(clone.pristine, "apply", "--check", str(out / "verl_omni.patch"))
    for path in RENDERED - {f"{PACKAGE}/scaffold.toml", f"{PACKAGE}/scaffold.lock.toml"}:
        assert (out / path).read_bytes() == (clone.root / path).read_bytes(), path
    git(clone.pristine, "apply", str(out / "verl_omni.patch"))
    try:
        assert git(clone.pristine, "diff") == clone.git("diff")
    finally:
        git(clone.pristine, "checkout", "--quiet", ".")


# Those of a package named as in the wheel run for each release in test_new_releases.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    "clone",
    [*(pytest.param(release, marks=pytest.mark.table) for release in PINS if release != "main"), "main"],
    indirect=True,
)
def test_rendered_tests_pass_for_another_name(clone: Clone, kit_passes: Callable[..., None], tmp_path: Path) -> None:
    for path in clone.rendered:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(clone.root / path, tmp_path / path)
    kit_passes(tmp_path, clone.release)


def test_version_flag_wins_over_the_pin(clone: Clone, scaffold_cli: Callable[..., Any]) -> None:
    options = ("--vllm-omni", "0.28.0", "--dry-run")
    assert f"pins vllm-omni {PINS[clone.release]}" in scaffold_cli(*ARGUMENTS, clone.pristine, *options).refusal(4)
    printed = scaffold_cli(*ARGUMENTS, clone.pristine, *options, "--allow-version-mismatch").success()
    assert "vllm-omni 0.28.0 " in printed.splitlines()[0]
    assert git(clone.pristine, "status", "--porcelain", "--ignored") == ""


def test_package_that_the_pinned_version_cannot_import_is_found(
    clone: Clone, scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    root = Path(shutil.copytree(clone.pristine, tmp_path / "copy", symlinks=True))
    command = ("new", "hidream_o1_image", "--verl-omni", root, "--vllm-omni", "0.30.0")
    assert "--allow-version-mismatch" in scaffold_cli(*command).refusal(4)
    assert git(root, "status", "--porcelain") == ""
    scaffold_cli(*command, "--allow-version-mismatch").success()
    # Among all packages of the checkout, only of this one a name is missing.
    found = scaffold_cli("check", root, "--select", "OSC53", "--format", "json")
    findings = json.loads(found.out)["findings"]
    assert found.code == 1
    assert {finding["rule"] for finding in findings} == {"OSC530", "OSC531"}
    assert {finding["path"].split("pipelines/")[1].split("/")[0] for finding in findings} == {
        "hidream_o1_image_flow_grpo"
    }
