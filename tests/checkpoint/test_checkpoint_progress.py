"""The progress bar: after a second, on a terminal, gone at the end."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from scaffold.checkpoint import read_checkpoint
from scaffold.terminal import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("terminal", "delay", "shown"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)])
def test_the_bar(terminal: bool, delay: float, shown: bool, sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "DELAY_SECONDS", delay)
    monkeypatch.setenv("TERM", "xterm")
    assert len(read_checkpoint(sharded).files) == 2
    assert ("reading" in stream.getvalue()) is shown
    if not shown:
        assert stream.getvalue() == ""


def test_hostile_names_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    with progress.progress_bar("[bold]x[/nobody]") as report:
        report(1, 2)
    assert "[/nobody]" in stream.getvalue()
