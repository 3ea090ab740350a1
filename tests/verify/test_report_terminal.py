"""The table on the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from report_examples import all_of, all_statuses, check, hostile, odd_numbers
from rich.console import Console

from scaffold.verify.report.html import html_report
from scaffold.verify.report.markdown import markdown_report
from scaffold.verify.report.terminal import print_failures, print_report
from scaffold.verify.result import TRUST, VerifyReport


def shown(report: VerifyReport, width: int = 80, *, colour: bool = False) -> str:
    stream = io.StringIO()
    system: Any = "standard" if colour else None
    print_report(report, Console(file=stream, width=width, highlight=False, force_terminal=colour, color_system=system))
    return stream.getvalue()


def line_of(text: str, name: str) -> list[str]:
    lines = [line.split() for line in text.splitlines()]
    found = [words for words in lines if words[:1] == [name] and words[1:2] in (["pass"], ["fail"], ["skip"])]
    assert len(found) == 1, (name, found)
    return found[0]


def test_one_line_for_each_contract() -> None:
    text = shown(all_statuses())
    assert line_of(text, "padding-invariance") == ["padding-invariance", "fail", "0.131", "1e-5", "relative", "1.2"]
    assert line_of(text, "determinism") == ["determinism", "pass", "0", "0", "absolute", "0.4"]
    assert line_of(text, "registration") == ["registration", "pass", "-", "-", "0.0"]
    assert line_of(text, "nccl")[1] == "skip"
    for entry in all_statuses().checks:
        line_of(text, entry.id)
    assert text.index("contract level") < text.index("registration") < text.index("rollout level")


def test_reasons_of_failures_and_skips_with_their_pitfalls() -> None:
    text = " ".join(shown(all_statuses()).split())
    assert "padding-invariance (pitfalls 1, 8) prompt 2 of 5 tokens beside one of 19: velocities move by 0.131;" in text
    assert "rollout-ragged-log-prob (pitfall 1) largest distance 1.6e-2" in text
    assert "nccl no GPU: torch finds 0 accelerators" in text
    assert "what was found for determinism" not in text


def test_skips_of_one_reason_are_one_line() -> None:
    skips = [check(name, "skip", level="rollout", reason="no engine") for name in ("a", "b", "c")]
    report = VerifyReport("p", "kit", (check("determinism"), *skips, check("d", "skip", reason="no GPU")))
    text = shown(report, 200)
    assert [line.strip() for line in text.splitlines()].count("a, b, c") == text.count("no engine") == 1
    assert "rollout level" not in text, "a table of nothing"
    assert line_of(text, "d")[1] == "skip"
    assert "--report" not in text, "a level that did not run is nothing to hand in"


def test_ends_with_the_counts_and_what_to_do() -> None:
    *_, counts, first, second = shown(all_statuses(), 200).strip().splitlines()
    assert counts == "10 contracts: 7 pass, 2 fail, 1 skip; measured in 12.9 s"
    assert first.startswith("next: repair padding-invariance first")
    assert first.endswith("--select padding-invariance runs it alone")
    assert second == "next: read why 1 contract was skipped"


def test_next_of_a_clean_contract_level_is_the_rollout() -> None:
    text = shown(all_of("pass"), 200)
    assert "3 contracts: 3 pass, 0 fail, 0 skip" in text
    assert "next: run the real rollout on a CPU with --level rollout" in text
    assert "real verl_omni can be imported" not in text
    rollout = VerifyReport("p", "kit", (check("rollout-x", value=0.0, limit=1.0, level="rollout"),))
    text = shown(rollout, 200)
    assert "--level rollout" not in text
    assert "next: repeat it where the real verl_omni can be imported" in text


@pytest.mark.parametrize("report", [all_of("skip"), VerifyReport("p", "kit", ())])
def test_nothing_verified_sends_nobody_on(report: VerifyReport) -> None:
    text = shown(report, 200)
    assert "0 pass, 0 fail" in text
    assert "next: " in text
    assert "--report" not in text


@pytest.mark.parametrize("report", [all_statuses(), odd_numbers(), hostile(), all_of("fail"), all_of("skip")])
def test_fits_eighty_columns_without_colour_or_control_characters(report: VerifyReport) -> None:
    text = shown(report)
    assert max(map(len, text.splitlines())) <= 80
    assert all(character.isprintable() or character == "\n" for character in text)


def test_colour_adds_nothing_but_colour() -> None:
    from rich.text import Text

    coloured = shown(all_statuses(), colour=True)
    assert "\x1b[" in coloured
    assert Text.from_ansi(coloured).plain.split() == shown(all_statuses()).split()


def test_odd_numbers_are_named() -> None:
    text = shown(odd_numbers())
    assert line_of(text, "not-a-number")[2] == "nan"
    assert line_of(text, "infinite")[2] == "inf"
    assert line_of(text, "just-above")[2:4] == ["1.0000001e-6", "1e-6"]
    assert line_of(text, "nothing-measured")[2:4] == ["-", "-"]


def test_markup_in_a_text_is_shown_not_obeyed() -> None:
    report = VerifyReport("[bold]p[/]", "kit", (check("a", "fail", reason="[red]x[/red] [/] [link=http://x]y[/link]"),))
    text = shown(report)
    assert "[bold]p[/]" in text
    assert "[red]x[/red] [/] [link=http://x]y[/link]" in text


def test_a_terminal_that_knows_ascii_only_gets_escapes() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    report = VerifyReport("p", "kit", (check("a", "fail", reason="2 × 3 → 7"),))
    print_report(report, Console(file=stream, width=80, highlight=False))
    stream.flush()
    assert b"2 \\xd7 3 \\u2192 7" in raw.getvalue()


def test_prints_on_stdout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_report(all_statuses())
    assert "padding-invariance" in capsys.readouterr().out


@pytest.mark.parametrize("render", [shown, markdown_report, html_report])
def test_the_first_lines_say_whose_word_the_results_of_each_level_are(render: Callable[[VerifyReport], str]) -> None:
    text = " ".join(render(all_statuses()).split()).replace("&#39;", "'")
    levels = {entry.level for entry in all_statuses().checks}
    assert levels == {"contract", "rollout"}
    for level, line in TRUST.items():
        assert (line in text) == (level in levels)
    assert text.index("evidence about an honest package") < text.index("padding-invariance")
    bare = replace(all_statuses(), checks=[check("a", level="train")])
    text = " ".join(render(bare).split()).replace("&#39;", "'")
    assert TRUST["train"] in text
    assert TRUST["contract"] not in text


def test_a_quiet_run_says_whose_word_it_is_too(capsys: pytest.CaptureFixture[str]) -> None:
    print_failures(all_statuses())
    assert "evidence about an honest package" in capsys.readouterr().out
