"""Files that are no good Python: each is a finding, none stops the check."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.check import check_paths
from scaffold.check.settings import Settings

PACKAGE = "verl_omni/pipelines/toy_flow_grpo"


@pytest.fixture
def toy(tmp_path: Path, write_base: Callable[..., Path]) -> Path:
    """Write the good package alone."""
    shutil.copytree(write_base(tmp_path / "whole") / PACKAGE, tmp_path / PACKAGE)
    return tmp_path / PACKAGE


def found(path: Path) -> list[tuple[str, int]]:
    """Return rule and line of what is found."""
    return [(finding.rule, finding.line) for finding in check_paths([path], settings=Settings()).findings]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"x = (\n", ("OSC001", 1)),
        (b"a = 1\n\tb = 2\n", ("OSC001", 2)),
        (b"print 'old'\n", ("OSC001", 1)),
        (b"x = 1\n\0\n", ("OSC001", 2)),
        (b"x = '\xe4'\n", ("OSC001", 1)),
        (b"a = 1\nb = 2\nc = '\xe4'\n", ("OSC001", 3)),
        ("x = 'ä'\n".encode("utf-16"), ("OSC001", 1)),
        (b"# coding: no-such-codec\nx = 1\n", ("OSC001", 1)),
        (b"# coding: punycode\n" + b"x" * 400_000 + b"\n", ("OSC001", 1)),
        (b"# coding: zlib_codec\nx = 1\n", ("OSC001", 1)),
        (b"# coding: utf-7\nx = 1\n", ("OSC001", 1)),
        (b"# coding: cp1252\nx = 1\n", ("OSC001", 1)),
        (b"x = " + b"-" * 200_000 + b"1\n", ("OSC001", 1)),
        (b"x = " + b"+".join([b"1"] * 100_000) + b"\n", ("OSC001", 1)),
    ],
    ids=[
        "bracket",
        "indent",
        "python2",
        "nul",
        "latin1",
        "latin1-line",
        "utf16",
        "codec",
        "punycode",
        "zlib",
        "utf-7",
        "cp1252",
        "unary",
        "sum",
    ],
)
def test_bad_file_is_a_finding(toy: Path, content: bytes, expected: tuple[str, int]) -> None:
    (toy / "extra.py").write_bytes(content)
    assert found(toy) == [expected]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfx = '\xc3\xa4'\n",
        b"# -*- coding: latin-1 -*-\nx = '\xe4'\n",
        b"# coding: us-ascii\nx = 1\n",
        "größe = 1\n".encode(),
        b"x = 1\r\ny = 2\r\n",
        b"",
        b"\n\n",
        b"x = 1\x0c\ny = 2\n",
        "x = '\u2028'\ny = 1\n".encode(),
        b"y = '\\d'\n",
    ],
    ids=["bom", "latin1-cookie", "ascii", "identifier", "crlf", "empty", "blank", "formfeed", "separator", "escape"],
)
def test_odd_but_good_file_is_none(toy: Path, content: bytes) -> None:
    (toy / "extra.py").write_bytes(content)
    assert found(toy) == []


def test_place_after_odd_separators_is_right(toy: Path) -> None:
    model = toy / "toy_model.py"
    text = model.read_text().replace("gradient_checkpointing = True", "gradient_checkpointing = False")
    plain = text.replace('"""The trained module."""', '"""The trained module."""\nODD = "x"')
    odd = text.replace('"""The trained module."""', '"""The trained module."""\nODD = "\u2028\x0b\x85ä"')
    model.write_text(plain)
    expected = found(toy)
    model.write_text(odd)
    assert found(toy) == expected
    assert [rule for rule, _ in expected] == ["OSC104"]


def test_rules_are_silent_about_a_package_that_cannot_be_read_whole(toy: Path) -> None:
    model = toy / "toy_model.py"
    model.write_text(
        model.read_text().replace("class ToyForTraining(", "class ToyForTraining((").replace("True", "False")
    )
    assert {rule for rule, _ in found(toy)} == {"OSC001"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_that_may_not_be_read(toy: Path) -> None:
    (toy / "extra.py").write_text("x = 1\n")
    (toy / "extra.py").chmod(0)
    assert found(toy) == [("OSC001", 1)]


def test_pipe_in_the_place_of_a_file_does_not_block(toy: Path) -> None:
    os.mkfifo(toy / "extra.py")
    assert found(toy) == [("OSC001", 1)]


def test_ten_thousand_lines_are_read(toy: Path) -> None:
    function = "def f{0}(a, b):\n    c = a + b\n    return [c, {{'k': a}}, f'{{b}}']\n\n\n"
    (toy / "extra.py").write_text("".join(function.format(n) for n in range(2_000)))
    assert found(toy) == []


def test_syntax_error_is_exit_code_1(toy: Path, scaffold_cli: Callable[..., Any]) -> None:
    (toy / "extra.py").write_text("x = (\n")
    outcome = scaffold_cli("check", toy)
    assert outcome.code == 1
    assert "OSC001 syntax error" in outcome.out
    assert outcome.err == ""


def test_text_cannot_act_on_the_terminal(toy: Path, scaffold_cli: Callable[..., Any]) -> None:
    (toy / "extra.py").write_text("x = (  # \x1b[31mred\u202e\n")
    out = scaffold_cli("check", toy).out
    assert "\x1b" not in out
    assert "\u202e" not in out
