"""The whole life of a package, command by command, as docs/lifecycle.md tells it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import commit, run_git, snapshot

pytestmark = [pytest.mark.upstream, pytest.mark.slow]

PAGE = (Path(__file__).resolve().parents[2] / "docs/lifecycle.md").read_text(encoding="utf-8")
PACKAGE = "verl_omni/pipelines/bagel_scaffold_flow_grpo"
README = "examples/flowgrpo_trainer/bagel_scaffold/README.md"


def test_life_of_a_package(warm: None, standin: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = standin("main", git=True)
    start = snapshot(root)

    def run(*arguments: object, code: int = 0) -> str:
        done = scaffold_cli(*arguments, cwd=root)
        assert done.code == code, done.out[-3000:] + done.err[-3000:]
        return str(done.out + done.err)

    printed = run("new", "bagel_scaffold", "--pipeline", "BagelPipeline", "--verl-omni", ".")
    _told(_last(printed))
    commit(root, "bagel_scaffold")

    path = root / README
    text = path.read_text()
    path.write_text(f"{text}\n# Ours.\n")
    commit(root, "an edit")

    drift = ("drift", PACKAGE, "--to", "0.30.0")
    printed = run(*drift)
    assert "detail.step_execution" in printed
    assert _last(printed).endswith("is not affected")

    _told(_last(run("update", PACKAGE, "--vllm-omni", "0.30.0", code=4)))
    pins = root / "pyproject.toml"
    pinned = pins.read_text()
    pins.write_text(pinned.replace("vllm-omni==0.27.0rc1", "vllm-omni==0.30.0"))
    commit(root, "vllm-omni 0.30.0")
    printed = run("update", PACKAGE)
    assert re.search(r"README\.md\s+changed, merged with your edits", printed)
    _told(next(line for line in printed.splitlines() if line.startswith("updated ")))
    assert "# Ours.\n" in path.read_text()
    assert "made for vllm-omni 0.30.0" in path.read_text()
    changed = run_git(root, "status", "--porcelain").split()
    assert set(changed[1::2]) == {
        f"{PACKAGE}/scaffold.lock.toml",
        README,
    }
    assert run(*drift).splitlines()[-1] == "no fact changed; nothing to do"

    commands = run("--help")
    if re.search(r"^\s+check\b", commands, re.MULTILINE):
        run("check", PACKAGE)
    if re.search(r"^\s+verify\b", commands, re.MULTILINE):
        # In a tree of its own: the stand-in's verl_omni cannot be run, and would be taken for the real one.
        alone = root.parent / "alone"
        for file in run_git(root, "ls-files").split():
            if ("bagel_scaffold" in file or "flow_grpo_runtime" in file) and not file.startswith("docs/"):
                (alone / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / file, alone / file)
        chosen = ("--select", "registration", "--select", "forward", "--select", "rollout-log-probs")
        done = scaffold_cli("verify", alone / PACKAGE, *chosen, cwd=alone)
        assert done.code == 0, done.out[-3000:] + done.err[-3000:]
        assert "3 pass, 0 fail" in done.out

    printed = run("remove", PACKAGE, code=4)
    _told(_last(printed))
    printed = run("remove", PACKAGE, "--keep-edited")
    _told(next(line for line in printed.splitlines() if line.startswith("note: edited")))
    tracked = [file for file in run_git(root, "ls-files").split() if "bagel_scaffold" in file]
    assert [file for file in tracked if (root / file).exists()] == [README]
    path.unlink()
    path.parent.rmdir()
    pins.write_text(pinned)
    assert snapshot(root) == start


def test_weekly_job_fails_for_an_affected_package(package: Callable[..., Path], tmp_path: Path) -> None:
    root = package()
    script = textwrap.dedent(PAGE.split("        run: |\n")[1].split("```")[0])
    assert "--to newest" in script
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, command in (
        ("omni-scaffold", f'{sys.executable} -m scaffold "$@"'),
        ("python", f'{sys.executable} "$@"'),
    ):
        (folder / name).write_text(f"#!/bin/sh\nexec {command}\n")
        (folder / name).chmod(0o755)
    for version, code in (("0.28.0", 0), ("0.22.0", 1)):
        summary = tmp_path / f"summary-{version}"
        done = subprocess.run(
            ["bash", "-e", "-c", script.replace("newest", version)],
            cwd=root,
            env={
                **os.environ,
                "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
                "GITHUB_STEP_SUMMARY": str(summary),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "## verl_omni/pipelines/toy_flow_grpo\n" in summary.read_text()
        assert ("more_steps" in summary.read_text()) == bool(code)


def _last(printed: str) -> str:
    return printed.strip().splitlines()[-1]


def _told(line: str) -> None:
    """The page shows what is printed."""
    assert line in PAGE, line


@pytest.mark.parametrize("command", ["drift", "update", "remove"])
def test_page_names_every_option(scaffold_cli: Callable[..., Any], command: str) -> None:
    everywhere = {"--help", "--quiet", "--verbose"}
    options = set(re.findall(r"(--[a-z-]+)", scaffold_cli(command, "--help").success())) - everywhere
    section = PAGE[PAGE.index(f"## `omni-scaffold {command}`") :].split("\n## ")[0]
    assert options <= set(re.findall(r"--[a-z-]+", section)), options - set(re.findall(r"--[a-z-]+", section))
