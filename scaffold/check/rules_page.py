"""Writes docs/rules.md: ``python -m scaffold.check.rules_page > docs/rules.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from scaffold.check.catalogue import all_rules, removed_rules
from scaffold.files.reading import read_text

# What the rules stand for: items of the guide's checklist, and bugs that happened.


class Entry(NamedTuple):
    """An item of the checklist, or a pitfall.

    Attributes:
        id: ``M3``, or ``pitfall 32``, as rules cite it.
        part: which part of an integration it is about; empty for pitfalls.
        text: what is asked for, or what went wrong.
        text_tells: the text of a package, or a checkpoint's headers, show it, so that a rule has to.
        verify: why the text does not tell all of it; None where it does.
    """

    id: str
    part: str
    text: str
    text_tells: bool
    verify: str | None


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """Return all items, then all pitfalls."""
    import tomli

    data = tomli.loads(read_text(Path(__file__).with_name("checklist.toml")))
    items = [Entry(item["id"], item["part"], item["text"], True, item.get("verify")) for item in data["item"]]
    pitfalls = [
        Entry(f"pitfall {item['number']}", "", item["text"], item["text_tells"], item.get("verify"))
        for item in data["pitfall"]
    ]
    return (*items, *pitfalls)


WILD = Path(__file__).resolve().parents[2] / "docs" / "found_in_the_wild.toml"
_FIXES = {"safe": "safe fix", "unsafe": "unsafe fix"}


def rules_page() -> str:
    """Return the page."""
    return "\n".join([*_head(), *_wild(), *_rules(), *_checklist(), *_gone()]).rstrip() + "\n"


def _head() -> Iterator[str]:
    yield "# Rules of `omni-scaffold check`"
    yield ""
    yield "<!-- Written by `make docs` from scaffold/check/rules/, checklist.toml and found_in_the_wild.toml. -->"
    yield ""
    yield f"{len(all_rules())} rules. `omni-scaffold check --explain OSC103` says why a rule is there, what to do"
    yield "instead, and shows an example. How to run them, hide a finding or configure them: [check.md](check.md)."
    yield "Text proves wiring; what a formula computes, [verify](verify.md) measures."
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
    yield "## The rules"
    yield ""
    group = None
    for rule in all_rules():
        if rule.group != group:
            yield from [""] * (group is not None)
            group = rule.group
            yield f"### {group[0].upper()}{group[1:]}"
            yield ""
            yield "| rule | finds | stands for |"
            yield "|---|---|---|"
        mark = "" if rule.fix is None else f" ({_FIXES[rule.safety]})"
        name = f'<a id="{rule.id.lower()}"></a>{rule.id} {rule.name}'
        yield f"| {name} | {rule.severity}: {rule.summary}{mark} | {', '.join(rule.checklist)} |"
    yield ""


def _gone() -> Iterator[str]:
    yield "## Rules that are gone"
    yield ""
    yield "| rule | instead |"
    yield "|---|---|"
    for name, instead in removed_rules().items():
        yield f"| {name} | {instead} |"


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
    yield ""


if __name__ == "__main__":
    sys.stdout.write(rules_page())
