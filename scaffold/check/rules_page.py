"""Writes docs/rules.md: ``python -m scaffold.check.rules_page > docs/rules.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from scaffold.check.catalogue import all_rules
from scaffold.check.checklist import Entry, entries
from scaffold.check.example import Example, base_tree, check_files
from scaffold.check.rule import Rule
from scaffold.reading import read_text

WILD = Path(__file__).resolve().parents[2] / "docs" / "found_in_the_wild.toml"
_FIXES = {"safe": "safe (`--fix`)", "unsafe": "unsafe (`--unsafe-fixes`)"}


def rules_page() -> str:
    """Return the page."""
    return "\n".join([*_head(), *_checklist(), *_rules(), *_wild()]).rstrip() + "\n"


def _head() -> Iterator[str]:
    count = len(all_rules())
    yield "# Rules of `omni-scaffold check`"
    yield ""
    yield "<!-- Written by `make docs` from scaffold/check/rules/, checklist.toml and found_in_the_wild.toml. -->"
    yield ""
    yield f"{count} rules. How to run them, hide a finding or configure them: [check.md](check.md)."
    yield "Each rule holds its own documentation and examples; `omni-scaffold check --explain OSC103` shows them too."
    yield ""


def _checklist() -> Iterator[str]:
    yield "## The checklist, item by item"
    yield ""
    yield "| item | asks for | held by |"
    yield "|---|---|---|"
    for entry in entries():
        if entry.part:
            yield f"| {entry.id} ({entry.part.lower()}) | {entry.text} | {_held_by(entry)} |"
    yield ""
    yield "## Bugs that happened"
    yield ""
    yield "Rules cite them by number."
    yield ""
    yield "| pitfall | bug | held by |"
    yield "|---|---|---|"
    for entry in entries():
        if not entry.part:
            yield f"| {entry.id.removeprefix('pitfall ')} | {entry.text} | {_held_by(entry)} |"
    yield ""


def _held_by(entry: Entry) -> str:
    rules = [rule for rule in all_rules() if entry.id in rule.checklist]
    links = ", ".join(f"[{rule.id}](#{rule.id.lower()})" for rule in rules)
    if entry.verify is None:
        return links
    reason = f"{entry.verify}"
    return f"{links}; the rest by `verify`: {reason}" if links else f"only `verify`: {reason}"


def _rules() -> Iterator[str]:
    group = None
    for rule in all_rules():
        if rule.group != group:
            group = rule.group
            yield f"## {group[0].upper()}{group[1:]}"
            yield ""
        yield from _rule(rule)


def _rule(rule: Rule) -> Iterator[str]:
    yield f'### <a id="{rule.id.lower()}"></a>{rule.id} {rule.name}'
    yield ""
    facts: list[str] = [rule.severity]
    if rule.checklist:
        facts.append(f"stands for {', '.join(rule.checklist)}")
    if rule.fix is not None:
        facts.append(f"fix: {_FIXES[rule.safety]}")
    yield " · ".join(facts)
    yield ""
    yield rule.documentation.strip()
    yield ""
    for example in rule.failing[:1]:
        yield from _example(example, rule)


def _example(example: Example, rule: Rule) -> Iterator[str]:
    """The first failing example, as the difference from the integration that is right."""
    from scaffold.plan.state import FileState
    from scaffold.plan.unified import difference

    files, _ = example.tree()
    base = dict(base_tree(example.base)) if example.base else {}
    # What comments are about depends on the other rules.
    findings = check_files(files, [] if rule.scope == "comments" else [rule.id])
    message = next((finding.message for finding in findings if finding.rule == rule.id), "nothing is found")
    yield f"Example, {example.title}: “{message}”."
    yield ""
    yield "```diff"
    for path in sorted(set(files) | set(base)):
        before, after = base.get(path), files.get(path)
        if before != after:
            old = FileState.text(before) if before is not None else None
            new = FileState.text(after) if after is not None else None
            if new is None or (len(new.content) > 4000 and old is None):
                yield f"# {path} {'is not there' if new is None else 'is too long to show'}"
                continue
            shown = difference(path, old, new, context=1).splitlines()
            yield from (
                line[:160].replace("\0", "\\0")
                for line in shown
                if not line.startswith(("diff --git", "new file", "--- "))
            )
    yield "```"
    yield ""


def _wild() -> Iterator[str]:
    import tomli

    data = tomli.loads(read_text(WILD))
    yield "## Found in the wild"
    yield ""
    yield from data["introduction"].strip().splitlines()
    yield ""
    yield "| rule | place | proof |"
    yield "|---|---|---|"
    for finding in data.get("finding", ()):
        place = f"`{finding['path']}:{finding['line']}`"
        yield f"| [{finding['rule']}](#{finding['rule'].lower()}) | {place} | {finding['proof']} |"
    yield ""
    yield "In code that packages inherit or call, and that no rule reads:"
    yield ""
    yield "| place | proof |"
    yield "|---|---|"
    for place in data.get("library", ()):
        yield f"| `{place['path']}:{place['line']}` | {place['proof']} |"


if __name__ == "__main__":
    sys.stdout.write(rules_page())
