"""Every rule against its own examples: found where they say, nowhere else, and gone after the fix."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scaffold.check.catalogue import all_rules
from scaffold.check.example import Example, base_tree, check_files
from scaffold.check.finding import Finding
from scaffold.check.rule import GROUPS, Rule

RULES = {rule.id: rule for rule in all_rules()}
FAILING = [(rule.id, number) for rule in RULES.values() for number in range(len(rule.failing))]
PASSING = [(rule.id, number) for rule in RULES.values() for number in range(len(rule.passing))]


def title(value: object) -> str:
    """Name a case by rule and number."""
    return str(value)


def shown(findings: list) -> str:
    """Return findings for a message."""
    return "\n".join(f"  {f.path}:{f.line}:{f.column} {f.rule} {f.message}" for f in findings) or "  nothing"


def fixed(example: Example, rule: str, files: dict[str, str], before: list[Finding]) -> None:
    """What the fix writes parses, removes the finding and adds none."""
    fixable = [f for f in before if f.rule == rule and f.fix is not None]
    for finding in fixable:
        assert finding.fix is not None
        texts = finding.fix.texts()
        assert texts, f"{example.title}: said to be fixable, but the fix gives nothing"
        for path, text in texts.items():
            assert text != files.get(path), f"{example.title}: the fix changes nothing"
            if path.endswith(".py"):
                ast.parse(text)
        after = check_files({**files, **texts})
        left = [f for f in after if f.rule == rule]
        assert len(left) < len([f for f in before if f.rule == rule]), f"{example.title}\n{shown(after)}"
        known = {(f.rule, f.message) for f in before}
        added = [f for f in after if (f.rule, f.message) not in known]
        assert not added, f"{example.title}: the fix adds\n{shown(added)}"


@pytest.mark.parametrize(("rule", "number"), FAILING, ids=title)
def test_failing_example_is_found_at_its_place_and_fixed(rule: str, number: int) -> None:
    example = RULES[rule].failing[number]
    files, marks = example.tree()
    assert marks, f"{example.title}: nothing is marked with «»"
    findings = check_files(files)
    own = [f for f in findings if f.rule == rule]
    places = [(f.path, f.line, f.column, f.end_line, f.end_column) for f in own]
    expected = [(path, s.line, s.column, s.end_line, s.end_column) for path, s in marks]
    for place, (path, line, column, end_line, end_column) in zip(places, expected, strict=False):
        # An empty mark says only where it begins.
        if (line, column) == (end_line, end_column):
            assert place[:3] == (path, line, column), f"{example.title}\n{shown(findings)}"
    exact = [e if e[1:3] != e[3:] else p for e, p in zip(expected, places, strict=False)] + expected[len(places) :]
    assert places == exact, f"{example.title}: expected {expected}\n{shown(findings)}"
    others = [f for f in findings if f.rule != rule and f.rule not in example.also]
    assert not others, (
        f"{example.title}: other rules speak too; name them in also= where they are right\n{shown(others)}"
    )
    fixed(example, rule, files, findings)


@pytest.mark.parametrize(("rule", "number"), PASSING, ids=title)
def test_passing_example_is_silent(rule: str, number: int) -> None:
    example = RULES[rule].passing[number]
    files, marks = example.tree()
    assert not marks, f"{example.title}: a passing example marks nothing"
    findings = check_files(files)
    own = [f for f in findings if f.rule == rule]
    assert not own, f"{example.title}\n{shown(own)}"
    others = [f for f in findings if f.rule not in example.also]
    assert not others, f"{example.title}: other rules speak; name them in also= where they are right\n{shown(others)}"


@pytest.mark.parametrize("rule", [rule.id for rule in RULES.values() if rule.fix is not None])
def test_rule_with_a_fix_has_an_example_of_it(rule: str) -> None:
    trees = (example.tree()[0] for example in RULES[rule].failing)
    assert any(finding.fix is not None for files in trees for finding in check_files(files, [rule]))


@pytest.mark.parametrize("base", ["non_diffusers", "diffusers"])
def test_base_of_the_examples_is_clean(base: str) -> None:
    findings = check_files(base_tree(base))
    assert not findings, shown(findings)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_rule_is_complete(rule: Rule) -> None:
    folder = Path(__file__).parents[2] / "scaffold" / "check" / "rules"
    files = [path.stem for path in folder.glob("osc*.py")]
    assert f"{rule.id.lower()}_{rule.name.replace('-', '_')}" in files
    assert re.fullmatch(r"OSC\d{3}", rule.id)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.severity in ("error", "warning")
    assert rule.scope in ("package", "project", "comments")
    assert rule.safety in ("safe", "unsafe")
    assert rule.id[3] in GROUPS
    assert rule.failing, "no failing example"
    assert rule.passing, "no passing example"
    assert all(isinstance(example, Example) for example in (*rule.failing, *rule.passing))
    for item in rule.checklist:
        assert re.fullmatch(r"[MTRDWS]\d|pitfall \d{1,2}", item), item
    paragraphs = [part for part in rule.documentation.strip().split("\n\n") if part.strip()]
    assert rule.summary.endswith("."), "the first line of the docstring is a sentence"
    assert len(paragraphs) >= 3, "the docstring says what, why and instead"
    assert any(part.lstrip().startswith("Instead:") for part in paragraphs), "a paragraph starts with 'Instead:'"


def test_identifiers_and_names_are_unique() -> None:
    rules = all_rules()
    assert len({rule.id for rule in rules}) == len({rule.name for rule in rules}) == len(rules)


def test_no_model_is_named_in_the_rules() -> None:
    folder = Path(__file__).parents[2] / "scaffold" / "check"
    named = [path.name for path in folder.rglob("*.py") if "bagel" in path.read_text(encoding="utf-8").lower()]
    named += [path.name for path in folder.rglob("*.txt") if "bagel" in path.read_text(encoding="utf-8").lower()]
    assert not named
