"""The formula that a rollout was seen to step with is kept in the package, and another one is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scaffold.files.formula import NAME, differences, recorded
from scaffold.verify.result import CheckResult
from scaffold.verify.rollout.formula_file import SEEN, lines_of, write

LINES = ["vllm-omni 0.30.0, guidance_scale=4", "2 steps, noise levels 1, 0.5, 0", "in 2 of 2 steps, from step 1:",
         "velocity = -(p1 + (p0 - p1) * 4)"]  # fmt: skip
FOUND = CheckResult(SEEN, "rollout", "", "pass", 0.0, 0.0, "lines", "; ".join(LINES))


def test_what_was_seen_is_written_once_and_read_again(tmp_path: Path) -> None:
    assert recorded(tmp_path) is None
    assert write(tmp_path, [FOUND]) == tmp_path / NAME
    assert recorded(tmp_path) == LINES
    assert write(tmp_path, [FOUND]) is None


def test_another_formula_is_a_difference_under_the_same_settings_alone(tmp_path: Path) -> None:
    other = [*LINES[:3], "velocity = p0"]
    assert differences(LINES, LINES) == []
    assert differences(None, other) == []
    assert differences(LINES, other) == ["velocity = p0", f"gone: {LINES[3]}"]
    assert differences(LINES, [LINES[0].replace("4", "5"), *other[1:]]) == []
    levels = [LINES[0], LINES[1].replace("0.5", "0.6"), *LINES[2:]]
    assert differences(LINES, levels) == [levels[1], f"gone: {LINES[1]}"]
    newer = [other[0].replace("0.30.0", "0.31.0"), *other[1:]]
    assert differences(LINES, newer) == []
    assert differences(LINES, newer, versions=True) == ["velocity = p0", f"gone: {LINES[3]}"]


def test_a_statement_that_moved_in_its_file_is_no_difference() -> None:
    kept = "a constant, where its gradient ends: pipe.py:{}: predictions of steps before take part"
    assert differences([*LINES, kept.format(7)], [*LINES, kept.format(9)]) == []
    assert differences(LINES, [*LINES, kept.format(9)]) == [kept.format(9)]
    assert differences([*LINES, kept.format(9)], LINES) == [f"gone: {kept.format(9)}"]


def test_a_formula_that_failed_is_shown_and_not_written(tmp_path: Path) -> None:
    failed = replace(FOUND, status="fail", value=1.0, reason=f"not so before: velocity = p0; {FOUND.reason}")
    assert lines_of(failed) == LINES
    assert write(tmp_path, [failed]) is None
    assert not (tmp_path / NAME).exists()
