"""Closed streams, a width that no terminal has, a stop in the first tenths of a second: one line, or a full answer."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.terminal.printable import json_text

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "scaffold")


def run(*arguments: str, closed: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=REPOSITORY,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("command", [("check", "reference_bagel"), ("check", "--list-rules"), ("doctor",), ("--help",)])
def test_nothing_runs_that_cannot_be_printed(command: tuple[str, ...]) -> None:
    done = run(*command, closed=">&-")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: standard output is closed; send it to a file")


def test_messages_that_are_closed_go_nowhere_else() -> None:
    done = run("check", "/nowhere", closed="2>&- <&-")
    assert (done.returncode, done.stdout) == (2, "")
    done = run("check", "reference_bagel", closed="2>&- <&-")
    assert (done.returncode, "All checks passed" in done.stdout) == (0, True)


def test_a_width_that_no_terminal_has_is_none() -> None:
    usual = run("doctor", COLUMNS="80")
    for columns in ("0", "99999999", "-1", "x"):
        done = run("doctor", COLUMNS=columns)
        assert done.returncode == usual.returncode, columns
        assert "git" in done.stdout, columns
        assert max(map(len, done.stdout.splitlines())) <= 200, columns


def test_a_stop_while_the_tool_is_loaded_is_one_line() -> None:
    """The first of its own modules waits; a console script has not reached its `main` then."""
    code = (
        "import sys, time\n"
        "def stop(event, args):\n"
        "    if event == 'import' and args[0] == 'scaffold.limits':\n"
        "        print('there', flush=True)\n"
        "        time.sleep(60)\n"
        "sys.addaudithook(stop)\n"
        "import scaffold.cli\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "there\n"
    time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=30)
    assert (child.returncode, error) == (
        130,
        "error: omni-scaffold was interrupted; nothing was written; run the command again\n",
    )


def test_json_is_no_order_to_a_runner_of_ci(
    self_contained: Path, tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    import shutil

    shutil.copytree(self_contained / "verl_omni", tmp_path / "verl_omni")
    package = next((tmp_path / "verl_omni" / "pipelines").iterdir())
    (package / "##[error]x.py").write_text("x = (\n")
    for format in ("json", "sarif", "github", "text"):
        shown = scaffold_cli("check", package, "--format", format).out
        assert "error]x.py" in shown or "error%5Dx.py" in shown
        assert not re.search(r"^\s*::(?!error |warning |notice )|##\w*\[", shown, re.MULTILINE), shown
    [finding] = json.loads(scaffold_cli("check", package, "--format", "json").out)["findings"]
    assert finding["path"].endswith("##[error]x.py")
    assert json.loads(json_text({"##[a": "x ##vso[b"})) == {"##[a": "x ##vso[b"}


@pytest.fixture
def checkout(tmp_path: Path, python_file: Callable[[Path, str], Any]) -> Path:
    """Return a stand-in for a checkout."""
    module = python_file(Path(__file__).parents[1] / "target" / "test_target.py", "stand_in_checkout")
    root: Path = module.standin(tmp_path / "verl-omni", "main")
    return root


@pytest.mark.parametrize(
    ("pin", "told"),
    [
        ("0.27.0rc1!1", "pins vllm-omni 0.27.0rc1!1, which is not a version"),
        ("99999999999999999999.1", "pins vllm-omni 99999999999999999999.1, which is not a version"),
        ("0.29.9", "pins vllm-omni 0.29.9, and no libraries are recorded for it"),
    ],
)
def test_a_pin_chooses_among_known_versions(
    pin: str, told: str, checkout: Path, scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = checkout / "pyproject.toml"
    text = re.sub(r"vllm-omni==[\w.]+", f"vllm-omni=={pin}", file.read_text())
    assert pin in text
    file.write_text(text)
    monkeypatch.setattr("scaffold.upstream.uv.run_uv", None)
    monkeypatch.setattr("scaffold.verify.rollout.resolving.run_uv", None)
    for command in (("env", "rollout", "--verl-omni", checkout), ("doctor", checkout, "--fix")):
        assert told in scaffold_cli(*command).refusal()
    done = scaffold_cli("doctor", checkout)
    assert ("which is not a version" in done.out) == ("not a version" in told)
