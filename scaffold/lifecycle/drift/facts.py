"""The facts that differ between two versions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scaffold.inspect.facts import UNKNOWN, Fact

if TYPE_CHECKING:
    from scaffold.inspect import Report

# Places, which move with every edit, and prose about another fact.
_NOT_COMPARED = ("location", "verdict.reason", "verdict.later")
_PLACE = re.compile(r"(?<=\.py):\d+$")


@dataclass(frozen=True)
class FactChange:
    """A fact in both versions; `UNKNOWN` if a version has no answer."""

    name: str
    before: Fact
    after: Fact


def changed_facts(before: Report, after: Report) -> tuple[FactChange, ...]:
    """Return the facts whose values differ, in the order of the report; a new place alone is not a change."""
    found = []
    for name in dict.fromkeys([*before.facts, *after.facts]):
        old, new = before.facts.get(name, UNKNOWN), after.facts.get(name, UNKNOWN)
        if not name.endswith(_NOT_COMPARED) and canonical(old.value) != canonical(new.value):
            found.append(FactChange(name, old, new))
    return tuple(found)


def with_facts(report: Report, changes: tuple[FactChange, ...]) -> Report:
    """Return the older report with some facts replaced by the newer ones."""
    return replace(report, facts={**report.facts, **{change.name: change.after for change in changes}})


def canonical(value: Any) -> str:
    """Return a value as text to compare, without line numbers."""
    return json.dumps(_without_lines(value), sort_keys=True, default=str)


def _without_lines(value: Any) -> Any:
    if isinstance(value, dict):
        places = "file" in value and "line" in value
        return {key: _without_lines(entry) for key, entry in value.items() if not (places and key == "line")}
    if isinstance(value, list | tuple):
        return [_without_lines(entry) for entry in value]
    return _PLACE.sub("", value) if isinstance(value, str) else value
