"""Files with CRLF line ends: the same findings at the same places, and fixes keep the ends."""

from __future__ import annotations

import pytest

from scaffold.check.catalogue import all_rules
from scaffold.check.example import base_tree, check_files
from scaffold.check.finding import Finding

# Rules that read scaffold.toml, the patch, scripts, comments and several lines of Python.
RULES = ("OSC104", "OSC303", "OSC309", "OSC401", "OSC505", "OSC511", "OSC513", "OSC602", "OSC901")


def with_crlf(files: dict[str, str]) -> dict[str, str]:
    """Return the files with CRLF; links stay."""
    return {p: t if t.startswith("-> ") else t.replace("\n", "\r\n") for p, t in files.items()}


def places(findings: list[Finding]) -> list[tuple[object, ...]]:
    """Return what is found and where."""
    return [(f.rule, f.path, f.line, f.column, f.end_line, f.end_column, f.message) for f in findings]


@pytest.mark.parametrize("base", ["non_diffusers", "diffusers"])
def test_clean_tree_stays_clean(base: str) -> None:
    assert not places(check_files(with_crlf(dict(base_tree(base)))))


@pytest.mark.parametrize("identifier", RULES)
def test_findings_are_the_same(identifier: str) -> None:
    rule = next(rule for rule in all_rules() if rule.id == identifier)
    for example in rule.failing:
        files, _ = example.tree()
        found = places(check_files(files))
        assert any(place[0] == identifier for place in found)
        assert places(check_files(with_crlf(files))) == found, example.title


def test_fix_keeps_the_line_ends() -> None:
    rule = next(rule for rule in all_rules() if rule.id == "OSC104")
    files = with_crlf(rule.failing[0].tree()[0])
    fixed = [finding for finding in check_files(files) if finding.fix is not None]
    assert fixed
    for path, text in fixed[0].fix.texts().items() if fixed[0].fix is not None else ():
        assert text.count("\n") == text.count("\r\n") > 0
        assert text.count("\r\n") in (files[path].count("\r\n"), files[path].count("\r\n") + 1)
