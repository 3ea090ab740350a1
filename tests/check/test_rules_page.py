"""docs/rules.md: current, and complete in what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaffold.check.catalogue import all_rules
from scaffold.check.checklist import entries
from scaffold.check.rules_page import rules_page

DOCS = Path(__file__).parents[2] / "docs"


def test_page_is_current() -> None:
    assert (DOCS / "rules.md").read_text(encoding="utf-8") == rules_page(), "run `make docs`"


@pytest.mark.parametrize("entry", [entry for entry in entries() if entry.text_tells], ids=lambda entry: entry.id)
def test_what_text_or_headers_tell_has_a_rule(entry: object) -> None:
    rules = [rule.id for rule in all_rules() if entry.id in rule.checklist]  # type: ignore[attr-defined]
    assert rules


def test_what_no_rule_holds_has_a_reason() -> None:
    cited = {item for rule in all_rules() for item in rule.checklist}
    for entry in entries():
        assert entry.id in cited or entry.verify, entry.id


def test_rules_cite_what_there_is() -> None:
    known = {entry.id for entry in entries()}
    assert not {item for rule in all_rules() for item in rule.checklist} - known
