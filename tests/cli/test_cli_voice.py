"""How much a command says: progress on a terminal, all with -v, nothing with -q; a contract's line as it ends."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.cli import main

Cli = Callable[..., Any]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[int, str, str]:
    """Run a command whose stderr is a terminal; returns status, stdout and what the terminal got."""
    master, slave = pty.openpty()
    monkeypatch.setattr(sys, "argv", ["omni-scaffold", *map(str, arguments)])
    with os.fdopen(master, "rb", buffering=0) as seen, os.fdopen(slave, "w") as screen:
        answer = io.StringIO()
        with contextlib.redirect_stderr(screen), contextlib.redirect_stdout(answer), pytest.raises(SystemExit) as end:
            main()
        screen.flush()
        return int(end.value.code or 0), answer.getvalue(), seen.read(4096).decode()


def test_a_new_package_and_nothing_said(reference: Path, tmp_path: Path, scaffold_cli: Cli) -> None:
    spec = next(reference.glob("verl_omni/pipelines/*/scaffold.toml"))
    command = ("new", "bagel", "--spec", spec, "--patch", "--out", tmp_path / "out")
    outcome = scaffold_cli(*command, "-q")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert (tmp_path / "out/verl_omni.patch").is_file()
    loud = scaffold_cli(*command, "-v")
    assert loud.err == "rendering\n"
    assert "nothing to do" in loud.out
    assert scaffold_cli(*command).err == "", "in a pipe nothing is said unasked"
    assert "exclude each other" in scaffold_cli(*command, "-q", "-v").refusal()
    gone = scaffold_cli("remove", tmp_path / "out", "--quiet")
    assert (gone.code, gone.out, gone.err) == (0, "", "")


@pytest.mark.parametrize("command", [("check",), ("preset", "list")])
def test_what_comes_next_is_no_result(command: tuple[str, ...], reference: Path, scaffold_cli: Cli) -> None:
    words = (*command, reference) if command == ("check",) else command
    assert "next: " in scaffold_cli(*words).success()
    assert "next: " not in scaffold_cli(*words, "-q").success()


def test_every_command_takes_both(scaffold_cli: Cli) -> None:
    text = scaffold_cli("--help").success()
    commands = [line.split()[0] for line in text.partition("Commands:\n")[2].splitlines() if line[2:3].isalpha()]
    assert len(commands) > 10
    for command in commands:
        shown = scaffold_cli(command, "--help").success()
        assert "-q, --quiet" in shown, command
        assert "-v, --verbose" in shown, command


def test_verify_prints_a_contract_as_it_ends(
    warm: None, reference: Path, scaffold_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = next(reference.glob("verl_omni/pipelines/*_flow_grpo"))
    chosen = ("verify", package, "--select", "registration")
    status, out, screen = on_a_terminal(monkeypatch, *chosen)
    assert status == 0
    assert "pass registration" in screen
    assert "registration" in out
    quiet = scaffold_cli(*chosen, "-q").success()
    assert quiet.startswith("1 contract: 1 pass, 0 fail, 0 skip"), "failures and counts only"
