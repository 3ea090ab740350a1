"""`new` on a terminal without MODEL asks; in a pipe it never does. The terminal is a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream
REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 300  # a hang ends as a failure
VERSION = ("--vllm-omni", "0.27.0rc1")


class Terminal:
    """A command on a terminal of its own, in a folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.seen, self.answered = "", 0
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts the tests may ignore it
            os.chdir(folder)
            os.environ |= {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", "TERM": "dumb"}
            os.execv(sys.executable, [sys.executable, "-m", "scaffold", *arguments])

    def answer(self, question: str, text: str) -> None:
        """Wait for a question and type an answer."""
        while question not in self.seen[self.answered :]:
            read = self._read()
            assert read, f"ended before {question!r}: {self.seen}"
        self.answered = self.seen.index(question, self.answered) + len(question)
        os.write(self.end, text.encode())

    def rest(self, press: str = "") -> int:
        """Read until the command ends; its status. `press` is typed again while nothing more is said."""
        while self._read(press):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, press: str = "") -> str:
        for _ in range(WAIT_SECONDS):
            ready, _, _ = select.select([self.end], [], [], 1)
            if ready:
                break
            os.write(self.end, press.encode())
        else:
            os.kill(self.pid, signal.SIGKILL)
            pytest.fail(f"it says nothing more: {self.seen}")
        try:
            text = os.read(self.end, 4096).decode(errors="replace").replace("\r", "")
        except OSError:  # Linux says so where the other side is closed
            text = ""
        self.seen += text
        return text


def test_it_asks_shows_what_it_found_and_prints_the_command(tmp_path: Path, scaffold_cli: Callable[..., Any]) -> None:
    terminal = Terminal(tmp_path, "new", *VERSION, "--dry-run")
    terminal.answer("part of its name: ", "image\n")
    terminal.answer("part of its name: ", "nosuchthing\n")
    terminal.answer("part of its name: ", "nextstep11pipeline\n")
    terminal.answer("part of its name: ", "bagel\n")
    terminal.answer("name of the integration [bagel]: ", "My-Toy\n")
    terminal.answer("name of the integration [bagel]: ", "toy\n")
    terminal.answer("(empty for none) []: ", "./nowhere\n")
    terminal.answer("(empty for none) []: ", "\n")
    terminal.answer("folder to write to [build/toy]: ", "\n")
    terminal.answer("FILE:FUNCTION [ocr]: ", "beauty\n")
    terminal.answer("FILE:FUNCTION [ocr]: ", "pickscore\n")
    terminal.answer("cfg_text_scale [4.0]: ", "high\n")
    terminal.answer("cfg_text_scale [4.0]: ", "3\n")
    terminal.answer("cfg_img_scale [1.0]: ", "\n")
    terminal.answer("cfg_interval [[0.0, 1.0]]: ", "[0.4, 1]\n")
    terminal.answer("cfg_renorm_type [global]: ", "\n")
    terminal.answer("cfg_renorm_min [0.0]: ", "\n")
    terminal.answer("lora, full [lora]: ", "some\n")
    terminal.answer("lora, full [lora]: ", "lora\n")
    terminal.answer("LoRA adapter [64]: ", "0\n")
    terminal.answer("LoRA adapter [64]: ", "32\n")
    assert terminal.rest() == 0, terminal.seen
    seen = terminal.seen
    assert "NextStep11Pipeline of vllm-omni " in seen
    assert "no pipeline has that in its name" in seen
    assert "is not supported here" in seen
    assert "is not a lower-case identifier" in seen
    assert "./nowhere" in seen.partition("(empty for none) []: ./nowhere")[2]
    assert re.search(r"scheduler\.shift: 3\.0 \(certain, vllm_omni/\S+:\d+\)", seen)
    assert re.search(r"guidance of the recipe: .*preset bagel", seen)
    assert "give ocr, pickscore" in seen
    assert "cfg_text_scale=high is of another kind" in seen
    assert "dry run: " in seen
    command = re.search(r"without questions: (omni-scaffold new .*)\n", seen)
    assert command is not None
    words = shlex.split(command[1])[1:]
    assert words == [
        *("new", "toy", "--pipeline", "BagelPipeline", *VERSION, "--out", "build/toy"),
        *("--reward", "pickscore", "--lora-rank", "32"),
        *("--guidance", "cfg_text_scale=3", "--guidance", "cfg_interval=[0.4, 1]", "--dry-run"),
    ]
    said = scaffold_cli(*words, cwd=tmp_path).success()
    assert said.splitlines()[-1] in seen


def test_the_printed_command_writes_the_same_tree(tmp_path: Path, scaffold_cli: Callable[..., Any]) -> None:
    given = (*VERSION, "--gpus", "2", "--profile", "v0.2.0", "--packaged", "--date", "02/03/2025")
    terminal = Terminal(tmp_path, "new", "--pipeline", "BagelPipeline", "--patch", "--out", "asked", *given)
    terminal.answer("name of the integration [bagel]: ", "toy\n")
    terminal.answer("(empty for none) []: ", "\n")
    terminal.answer("FILE:FUNCTION [ocr]: ", "\n")
    for name in ("cfg_text_scale", "cfg_img_scale", "cfg_interval", "cfg_renorm_type", "cfg_renorm_min"):
        terminal.answer(f"guidance {name} [", "\n")
    terminal.answer("lora, full [lora]: ", "full\n")
    assert terminal.rest() == 0, terminal.seen
    command = re.search(r"without questions: (omni-scaffold new .*)\n", terminal.seen)
    assert command is not None
    words = shlex.split(command[1])[1:]
    assert "--guidance" not in words, "the recipe's own values need no option"
    assert "--reward" not in words
    words[words.index("asked")] = "told"
    scaffold_cli(*words, cwd=tmp_path).success()
    assert tree(tmp_path / "asked") == tree(tmp_path / "told")
    script = "examples/flowgrpo_trainer/toy/run_toy_ocr.sh"
    assert "actor_rollout_ref.model.lora_rank=0\n" in (tmp_path / "asked" / script).read_text()


def test_what_no_source_tells_is_asked_of_a_named_model_too(tmp_path: Path, scaffold_cli: Callable[..., Any]) -> None:
    given = ("new", "MingImageDiffusionPipeline", "--vllm-omni", "0.30.0", "--patch", "--out", "out", "--dry-run")
    terminal = Terminal(tmp_path, *given)
    terminal.answer("FILE:FUNCTION (empty for a variable of the scripts) []: ", "\n")
    terminal.answer("WIDTHxHEIGHT (empty for variables of the scripts) []: ", "big\n")
    terminal.answer("WIDTHxHEIGHT (empty for variables of the scripts) []: ", "512x256\n")
    assert terminal.rest() == 0, terminal.seen
    assert "big is not a size" in terminal.seen
    assert "guidance of the recipe" not in terminal.seen, "the source tells it"
    command = re.search(r"without questions: (omni-scaffold new .*)\n", terminal.seen)
    assert command is not None
    assert shlex.split(command[1])[-4:] == ["--resolution", "512x256", "--patch", "--dry-run"]
    scaffold_cli(*given).success()


def tree(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "new", *VERSION)
    terminal.answer("part of its name: ", "\x03")
    # A signal between readline's prompt and its wait is seen with the next one only.
    assert terminal.rest(press="\x03") == 128 + signal.SIGINT
    assert "interrupted" in terminal.seen
    assert "Traceback" not in terminal.seen
    assert list(tmp_path.iterdir()) == []


def test_in_a_pipe_nothing_is_asked(scaffold_child: Callable[..., Any], tmp_path: Path) -> None:
    assert "Missing argument 'MODEL'" in scaffold_child("new", *VERSION, cwd=tmp_path).refusal()
