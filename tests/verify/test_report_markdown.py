"""The section of a pull request."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from report_examples import HOSTILE, all_of, all_statuses, check, hostile, odd_numbers

from scaffold.terminal.printable import printable
from scaffold.verify.report.markdown import code, markdown_report, prose
from scaffold.verify.result import VerifyReport


def test_section() -> None:
    lines = markdown_report(all_statuses()).splitlines()
    assert lines[:4] == [
        "### Test",
        "",
        "`omni-scaffold verify` ran `example_flow_grpo` with the contract kit, a stand-in for verl_omni.",
        "2 of 10 contracts fail. (10 contracts: 7 pass, 2 fail, 1 skip; measured in 12.9 s)",
    ]
    assert "| contract | result | measured | limit | floor | unit |" in lines
    padding = next(line for line in lines if "`padding-invariance` |" in line)
    assert padding.startswith("| Padding of other prompts changes nothing<br>`padding-invariance` | **fail** |")
    assert padding.endswith("| 0.131 | 1e-5 | 1.2e-7 | relative |")
    assert "| FSDP2 over NCCL gives equal gradients<br>`nccl` | **skip** |  |  |  |  |" in lines
    assert "- `rollout-ragged-log-prob` (pitfall 1): largest distance 1.6e-2 at prompt 2, step 3" in lines
    assert "- `nccl`: no GPU: torch finds 0 accelerators" in lines
    assert "| torch | 2.13.0+cpu |" in lines
    assert lines[-3:] == [
        "```shell",
        "omni-scaffold verify verl_omni/pipelines/example_flow_grpo --level rollout",
        "```",
    ]


def test_every_contract_has_one_row_of_six_cells() -> None:
    for report in (all_statuses(), odd_numbers(), hostile()):
        rows = [line for line in markdown_report(report).splitlines() if "<br>" in line]
        assert len(rows) == len(report.checks)
        assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)


def test_levels_have_tables_of_their_own() -> None:
    text = markdown_report(all_statuses())
    assert (
        text.index("`nccl`") < text.index("**Real rollout against training, on a CPU**") < text.index("`rollout-wide")
    )
    assert "Real rollout" not in markdown_report(all_of("pass"))


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (all_of("pass"), "All 3 contracts pass."),
        (all_of("pass", 1), "The one contract passes."),
        (all_of("fail"), "3 of 3 contracts fail."),
        (all_of("skip"), "All 3 contracts were skipped: nothing is verified."),
        (VerifyReport("p", "kit", ()), "No contract ran: nothing is verified."),
        (VerifyReport("p", "kit", (check("a"), check("b", "skip"))), "1 of 2 contracts passes, the rest was skipped."),
        (
            VerifyReport("p", "kit", (check("a"), check("b", "skip", level="rollout"))),
            "The one contract of level rollout was skipped: nothing of level rollout is verified.",
        ),
    ],
)
def test_verdict(report: VerifyReport, sentence: str) -> None:
    text = markdown_report(report)
    assert f"{sentence} (" in text
    assert ("**Failed**" in text, "**Skipped**" in text) == (report.failed, report.count("skip") > 0)


def test_numbers_that_are_none() -> None:
    text = markdown_report(odd_numbers())
    assert "`not-a-number` | **fail** | nan | 1e-6 |" in text
    assert "`infinite` | **fail** | inf | 1e-6 |" in text
    assert "`zero` | **pass** | 0 | 1e-6 | 0 |" in text


def inline(text: str) -> list[Token]:
    """Return the inline tokens of ``text`` as CommonMark with tables has them."""
    blocks = MarkdownIt("commonmark").enable("table").parse(text)
    return [token for block in blocks for token in block.children or ()]


def test_hostile_text_is_only_text() -> None:
    text = markdown_report(hostile())
    text.encode("utf-8")
    tokens = inline(text)
    kinds = {token.type for token in tokens}
    assert kinds <= {"text", "text_special", "code_inline", "strong_open", "strong_close", "html_inline", "softbreak"}
    assert {token.content for token in tokens if token.type == "html_inline"} == {"<br>"}
    plain = "".join(token.content for token in tokens if token.type.startswith("text"))
    assert "octocat" in plain
    assert "</script><script>document.title='owned'</script>" in plain
    # GitHub's own rules, which no backslash stops.
    assert not re.search(r"@\w|#\d|://|www\.", plain)
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_hostile_text_moves_no_cell() -> None:
    blocks = MarkdownIt("commonmark").enable("table").parse(markdown_report(hostile()))
    cells = [blocks[n + 1].content for n, block in enumerate(blocks) if block.type == "td_open"]
    environment = cells[-2 * len(HOSTILE) :]
    assert environment[::2] == environment[1::2]
    statuses = cells[: -2 * len(HOSTILE)][1::6]
    assert statuses == ["**fail**", "**skip**"] * len(HOSTILE)


def test_a_command_cannot_end_its_block() -> None:
    text = markdown_report(VerifyReport("p", "kit", (), {}, ("a\n```\n# b", "echo '  `````'")))
    block = text[text.index("``````shell") :].splitlines()
    assert block == ["``````shell", r"a\n```\n# b", "echo '  `````'", "``````"]


@pytest.mark.parametrize("text", [*HOSTILE, "`", "``a", "b`", "a|b", "\\", "a\\"])
def test_code_spans_hold_any_text(text: str) -> None:
    table = f"| a |\n| --- |\n| {code(text)} |\n"
    (found,) = [token for token in inline(table) if token.type == "code_inline"]
    assert found.content == printable(text)


@pytest.mark.parametrize(
    "text", ["- item", "1. item", "+ item", "# heading", "> quote", "    indented", "~~~", "*", "&lt;"]
)
def test_prose_is_one_paragraph_of_text(text: str) -> None:
    blocks = MarkdownIt("commonmark").parse(prose(text))
    assert [block.type for block in blocks] == ["paragraph_open", "inline", "paragraph_close"]
    children = blocks[1].children or []
    assert "".join(token.content for token in children).replace("\u200b", "") == text.strip()


def test_long_reasons_are_cut_and_say_so() -> None:
    text = markdown_report(
        VerifyReport("p", "kit", tuple(check(f"c{n}", "fail", reason="x" * 1000) for n in range(80)))
    )
    assert "x" * 399 + "…\n" in text
    assert "x" * 400 not in text
    # What a pull request holds.
    assert len(text) < 65_536
