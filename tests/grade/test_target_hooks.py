"""verl-omni's own pre-commit hooks, as far as they need no network, on every package that the tool calls complete."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaffold.grade.proof import proofs
from scaffold.new import NewRequest, plan_new
from scaffold.render.formats.python import ruff_binary
from scaffold.render.names import model_name

VERSION = "0.30.0"
CHECKOUT = os.environ.get("VERL_OMNI_SRC", "")
COMPLETE = sorted({proven.partition(" ")[0] for proven in proofs()[VERSION]})
RUFF = {"ruff": ("check", "--no-fix"), "ruff-format": ("format", "--check")}
# One fetches an environment, one imports hydra and the trainer that it makes a configuration of.
NOT_OFFLINE = {"mypy", "autogen-trainer-cfg"}
pytestmark = [
    pytest.mark.upstream,
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKOUT, reason="VERL_OMNI_SRC names no verl-omni checkout"),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return verl-omni with every complete package in it."""
    root = tmp_path_factory.mktemp("hooks") / "verl-omni"
    shutil.copytree(CHECKOUT, root, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    for pipeline in COMPLETE:
        request = NewRequest(
            f"{model_name(pipeline)}_x",
            pipeline=pipeline,
            vllm_omni=VERSION,
            verl_omni=str(root),
            allow_version_mismatch=True,
        )
        plan_new(request).plan.commit()
    for command in (("init", "--quiet"), ("add", "--all")):  # one hook asks git which files there are
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def hooks(root: Path) -> dict[str, tuple[str | None, list[str]]]:
    """Return each hook of the checkout with the release that it wants and its command."""
    document: dict[str, Any] = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())
    found: dict[str, tuple[str | None, list[str]]] = {}
    for repository in document["repos"]:
        for hook in repository["hooks"]:
            if hook["id"] in RUFF:
                command, *flags = RUFF[hook["id"]]
                found[hook["id"]] = (repository["rev"], [ruff_binary(), command, "--no-cache", *flags, "."])
            elif hook["id"] not in NOT_OFFLINE:
                found[hook["id"]] = (None, ["bash", "-c", hook["entry"]])
    return found


def test_every_hook_passes_on_every_complete_package(checkout: Path) -> None:
    wanted = hooks(checkout)
    assert set(wanted) >= {*RUFF, "check-docs-time-info", "check-docstrings", "check-license", "validate-structure"}
    assert len(list((checkout / "verl_omni/pipelines").glob("*_x_flow_grpo"))) == len(COMPLETE) >= 15
    said = []
    for name, (release, command) in wanted.items():
        if release is not None:
            have = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
            assert have.split()[1] == release.removeprefix("v"), f"{name} wants another ruff"
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        if done.returncode:
            said.append(f"{name}: {(done.stdout + done.stderr)[-2000:]}")
    assert not said, "\n".join(said)


def test_no_file_is_let_off_as_a_whole(checkout: Path) -> None:
    """A line that is as upstream wrote it may say so; a file may not."""
    packages = (checkout / "verl_omni/pipelines").glob("*_x_flow_grpo/*.py")
    assert [path.name for path in packages if "# ruff: noqa" in path.read_text(encoding="utf-8")] == []
