"""What is shown of foreign text cannot act: on a terminal, in a log, as markup, as a line of its own."""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from own_code import in_one_worker, nodes, trees
from rich.table import Table
from rich.text import Text

from scaffold.check import check_paths
from scaffold.check.formats.github import render_github
from scaffold.check.formats.sarif import render_sarif
from scaffold.check.formats.text import render_text
from scaffold.files.documents import MalformedError, parse_json, parse_toml, parse_yaml
from scaffold.terminal.console import SafeConsole, said
from scaffold.terminal.printable import printable, printable_command, printable_lines

ACTS = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\u200b\u2066\ufeff\r[/bold][red]:warning:\udc80"
FORGED = f"name\n::error file=a::forged{ACTS}"
# The one place that may make a console, and the one that may say which characters are shown as they are.
CONSOLES, ESCAPES = {"terminal/console.py"}, {"terminal/printable.py"}


def harmless(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text) and "\n::error file=a::forged" not in text


@pytest.mark.parametrize("show", [printable, printable_command])
def test_printable_is_one_line_of_printable_characters(show: Callable[[object], str]) -> None:
    shown = show(FORGED)
    assert shown.isprintable()
    assert r"\x1b[2J" in shown
    assert r"\u202e\u200b\u2066\ufeff" in shown
    assert shown.encode()


def test_lines_of_a_difference_stay_lines() -> None:
    assert printable_lines("a\n\tb\r\n\x1b[1m\n") == "a\n\tb\\r\n\\x1b[1m\n"


def test_console_prints_nothing_that_acts() -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, width=200, force_terminal=False)
    table = Table()
    table.add_column(FORGED)
    table.add_row(said(FORGED), Text(f"a{ACTS}"))
    console.print(said((FORGED, "bold"), f" {FORGED}"))
    console.print(f"x{ACTS}", table, Text(f"y{ACTS}"))
    shown = file.getvalue()
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "[/bold][red]:warning:" in shown
    assert "::error" in shown.splitlines()[0]


def test_styles_are_no_part_of_the_text() -> None:
    file = io.StringIO()
    SafeConsole(file=file, width=80, force_terminal=True, color_system="standard").print(said((ACTS, "red")))
    assert re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).isascii()


@in_one_worker
def test_nobody_else_makes_a_console_or_an_escape() -> None:
    makers, escapers = set(), set()
    for name, tree in trees().items():
        for node in nodes(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            stderr = any(keyword.arg == "stderr" for keyword in node.keywords)
            if called == "Console" and not stderr:
                makers.add(name)
            if called == "encode" and any(getattr(a, "value", None) == "unicode_escape" for a in node.args):
                escapers.add(name)
            assert not any(k.arg == "markup" and getattr(k.value, "value", None) for k in node.keywords), name
    assert makers <= CONSOLES
    assert escapers <= ESCAPES


@pytest.fixture
def hostile_package(reference: Path, tmp_path: Path) -> Path:
    """Return a package with names and lines that would act, one finding in each."""
    package = tmp_path / "pipelines" / "bagel_flow_grpo"
    package.mkdir(parents=True)
    for path in sorted(reference.glob("verl_omni/pipelines/*/*")):
        (package / path.name).write_bytes(path.read_bytes())
    for name in ("a\n::error file=a::forged.py", "b\x1b[31m\u202e.py", "c\udc80.py"):
        (package / name).write_text(f"def broken(:  # {ACTS}\n", encoding="utf-8", errors="surrogateescape")
    return package


def test_check_shows_nothing_that_acts(hostile_package: Path) -> None:
    report = check_paths([hostile_package])
    assert any("\x1b" in finding.path for finding in report.findings)
    for text in (render_text(report), render_github(report)):
        assert harmless(text)
    assert json.loads(render_sarif(report))["runs"][0]["results"]
    assert render_sarif(report).isascii()


@pytest.mark.parametrize("format", ["text", "github", "sarif", "json"])
def test_check_command_on_hostile_names(hostile_package: Path, scaffold_cli: Callable[..., Any], format: str) -> None:
    done = scaffold_cli("check", hostile_package, "--format", format)
    assert done.code == 1
    assert harmless(done.out)
    assert done.err == ""


@pytest.mark.parametrize("command", [("inspect",), ("new",), ("check",), ("remap",), ("update",), ("remove",)])
def test_errors_name_hostile_arguments_safely(
    scaffold_cli: Callable[..., Any], tmp_path: Path, command: tuple[str, ...]
) -> None:
    hostile = f"zq{FORGED}".replace("\udc80", "").replace("/", "_")
    (tmp_path / "vllm_omni").mkdir()
    more = ("--vllm-omni", str(tmp_path)) if command in (("inspect",), ("new",)) else ()
    done = scaffold_cli(*command, hostile, *more, cwd=tmp_path)
    assert done.code == 2
    assert harmless(done.err)
    assert len(done.err.splitlines()) == 1


TAKES_A_PATH = [
    ("check",),
    ("new", "bagel", "--verl-omni"),
    ("new", "bagel", "--patch", "--out"),
    ("remove",),
    ("update",),
    ("drift",),
    ("remap",),
    ("inspect", "bagel", "--vllm-omni"),
    ("inspect", "bagel", "--checkpoint"),
    ("verify",),
    ("skill", "--verl-omni"),
    ("doctor",),
    ("preset", "list", "--verl-omni"),
]


@pytest.mark.parametrize("command", TAKES_A_PATH, ids=" ".join)
@pytest.mark.parametrize("path", ["~nobody-here/x", "a" * 5000, "loop"], ids=["tilde", "long", "loop"])
def test_what_is_no_path_is_one_line(
    scaffold_cli: Callable[..., Any], tmp_path: Path, command: tuple[str, ...], path: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    scaffold_cli(*command, path, cwd=tmp_path).refusal(2)


@pytest.mark.parametrize("command", [("check",), ("new", "bagel"), ("doctor",), ("preset", "list"), ("skill",)])
def test_a_working_directory_that_is_gone_is_one_line(
    scaffold_child: Callable[..., Any], tmp_path: Path, command: tuple[str, ...]
) -> None:
    leave = "import os, sys; os.chdir(sys.argv.pop(1)); os.rmdir(os.getcwd()); from scaffold.cli import main; main()"
    (tmp_path / "gone").mkdir()
    said = scaffold_child(tmp_path / "gone", *command, code=leave).refusal(2)
    assert said == "the working directory is gone; change to one that is there"


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_what_is_too_large_is_one_line(
    scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("scaffold.inspect.inspect_pipeline", fail)
    line = scaffold_cli("inspect", "bagel").refusal(2)
    assert line.startswith("`omni-scaffold inspect`: something that it reads is ")


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_toml, f"a = {DIGITS}"),
        (parse_toml, f"a = 0x{'f' * 5000}"),
        (parse_toml, f"a = {'[' * 100_000}"),
        (parse_toml, f"a = {'{a = ' * 20_000}"),
        (parse_json, f'{{"a": {DIGITS}}}'),
        (parse_json, "[" * 200_000),
        (parse_json, b"\xff"),
        (parse_yaml, f"a: {DIGITS}"),
        (parse_yaml, "[" * 20_000),
        (parse_yaml, "a: &a [*a]"),
        (parse_yaml, "\n".join(["a0: &a0 [x]"] + [f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]" for n in range(60)])),
        (parse_yaml, "a: !!python/object/apply:os.system [id]"),
    ],
)
def test_documents_are_refused_with_one_reason(parse: Callable[[Any], Any], text: Any) -> None:
    with pytest.raises(MalformedError) as error:
        parse(text)
    assert printable(error.value) == str(error.value)
    assert len(str(error.value)) < 200


SPECS = (f"schema = {DIGITS}\n", f"schema = 1\na = {'[' * 100_000}", f"schema = 0x{'f' * 5000}")


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("command", ["update", "remove", "check", "remap"])
def test_spec_with_long_numbers_or_deep_nesting(
    scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path, command: str, text: str
) -> None:
    package = tmp_path / "verl_omni/pipelines/bagel_flow_grpo"
    package.mkdir(parents=True)
    for path in sorted(reference.glob("verl_omni/pipelines/*/*.py")):
        (package / path.name).write_bytes(path.read_bytes())
    (package / "scaffold.toml").write_text(text)
    more = ("--checkpoint", str(tmp_path)) if command == "remap" else ()
    done = scaffold_cli(command, package, *more)
    assert done.code in (1, 2)
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 1


def test_version_with_markup_is_shown_as_it_is(
    scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path
) -> None:
    root = tmp_path / "tree"
    shutil.copytree(reference, root, symlinks=True)
    spec = next(root.glob("verl_omni/pipelines/*/scaffold.toml"))
    spec.write_text(re.sub(r'(?m)^display = "[^"]*"', 'display = "[/bold]\\\\u001b[31m"', spec.read_text()))
    shown = scaffold_cli("remove", spec.parent, "--dry-run", "--force").success()
    assert "[/bold]\\x1b[31m" in shown
    assert harmless(shown)


def test_the_streams_speak_utf8(scaffold_child: Callable[..., Any]) -> None:
    code = "from scaffold.terminal.printable import printable; print(printable('\\udc80'))"
    assert scaffold_child(code=code).out == "\\udc80\n"


def test_no_line_is_an_order_to_a_runner_of_ci() -> None:
    """Neither at its start, where a wrapped line has one too, nor, as older orders are taken, anywhere."""
    written = io.StringIO()
    console = SafeConsole(file=written, width=40)
    console.print("a" * 30 + " ::error::where a long line is wrapped")
    console.print("one\n  ::error::two")
    console.print(said(("b" * 36, "bold"), " ::error::three"))
    table = Table()
    table.add_column("x")
    table.add_row("c ##[error]four ##vso[x]five")
    console.print(table)
    shown = written.getvalue()
    assert not re.search(r"^\s*::|##\w*\[", shown, re.MULTILINE)
    assert shown.count(r"\x3a:error") == 3
    assert "a::b" in printable("a::b")
    for show in (printable, printable_command):
        assert show("::error::x ##[error]x") == r"\x3a:error::x #\x23[error]x"
        assert show("x ##vso[task.setvariable]x ##teamcity[x") == r"x #\x23vso[task.setvariable]x #\x23teamcity[x"
        assert show("a ## b [c] ###") == "a ## b [c] ###"
