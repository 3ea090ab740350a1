"""What changed between two versions: facts of a pipeline, and by name what a package executes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.inspect.facts import UNKNOWN, Fact
from scaffold.source.changes import changed_definitions

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.spec import IntegrationSpec
    from scaffold.upstream import UpstreamSource


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


@dataclass(frozen=True)
class ExecutedChange:
    """A file whose text is another one.

    Attributes:
        file: relative to the folder that holds ``vllm_omni``.
        changed: functions, classes and methods that changed, are new or are gone; empty where only comments did.
        gone: whether there is no such file any more.
    """

    file: str
    changed: tuple[str, ...]
    gone: bool = False


def executed_changes(spec: IntegrationSpec, old: UpstreamSource, new: UpstreamSource) -> tuple[ExecutedChange, ...]:
    """Return the files of a package's denoiser that changed between two versions, with what changed in each."""
    files = [str(entry["file"]) for entry in spec.value("port.executed") or []]
    return tuple(_changes(files, old, new))


def _changes(files: Iterable[str], old: UpstreamSource, new: UpstreamSource) -> Iterator[ExecutedChange]:
    for file in files:
        if not new.exists(file):
            yield ExecutedChange(file, (), gone=True)
            continue
        if not old.exists(file) or old.read(file) == new.read(file):
            continue
        try:
            yield ExecutedChange(file, changed_definitions(old.tree(file), new.tree(file)))
        except ScaffoldError:
            yield ExecutedChange(file, ())
