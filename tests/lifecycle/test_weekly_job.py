"""The weekly job of docs/lifecycle.md: looks at every package, and fails when one is affected."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from scaffold import __version__

PAGE = (Path(__file__).resolve().parents[2] / "docs/lifecycle.md").read_text(encoding="utf-8")


def steps() -> list[dict[str, str]]:
    block = re.search(r"```yaml\n(# \.github/workflows/vllm-omni-drift\.yml\n.*?)```", PAGE, re.DOTALL)
    assert block is not None
    found: list[dict[str, str]] = yaml.safe_load(block[1])["jobs"]["drift"]["steps"]
    return found


def test_it_installs_this_version() -> None:
    assert f"pip install tools/omni_scaffold-{__version__}-py3-none-any.whl" in [step.get("run") for step in steps()]


@pytest.mark.parametrize("shell", [["bash", "-e"], ["bash", "-eo", "pipefail"]])  # as GitHub starts it
@pytest.mark.parametrize(("affected", "status"), [("", 0), ("b_flow_grpo", 1), ("a_flow_grpo", 1)])
def test_every_package_is_looked_at(tmp_path: Path, affected: str, status: int, shell: list[str]) -> None:
    tool = tmp_path / "bin/omni-scaffold"
    tool.parent.mkdir()
    tool.write_text(f'#!/usr/bin/env bash\necho "asked: $*"\n[ "$(basename "$2")" != "{affected}" ]\n')
    tool.chmod(0o755)
    for name in ("a_flow_grpo", "b_flow_grpo"):
        (tmp_path / "verl_omni/pipelines" / name).mkdir(parents=True)
        (tmp_path / "verl_omni/pipelines" / name / "scaffold.toml").touch()
    summary = tmp_path / "summary.md"
    done = subprocess.run(
        [*shell, "-c", steps()[-1]["run"]],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(summary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    for name in ("a_flow_grpo", "b_flow_grpo"):
        assert f"asked: drift verl_omni/pipelines/{name} --to newest" in summary.read_text()
