"""docs/rules.md: current, and complete in what it promises."""

from __future__ import annotations

from pathlib import Path

from scaffold.check.catalogue import all_rules
from scaffold.check.rules_page import entries, rules_page

DOCS = Path(__file__).parents[2] / "docs"


def test_page_is_current() -> None:
    assert (DOCS / "rules.md").read_text(encoding="utf-8") == rules_page(), "run `make docs`"


def test_each_item_has_a_rule_or_a_reason_and_rules_cite_what_there_is() -> None:
    cited = {item for rule in all_rules() for item in rule.checklist}
    assert not [entry.id for entry in entries() if entry.text_tells and entry.id not in cited]
    assert not [entry.id for entry in entries() if entry.id not in cited and not entry.verify]
    assert not cited - {entry.id for entry in entries()}
