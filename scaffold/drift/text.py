"""A comparison as text: one block for each change, and what to do next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from scaffold.drift.facts import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaffold.drift.hunks import Hunk
    from scaffold.drift.report import Drift, FactDrift
    from scaffold.drift.surface import SurfaceChange
    from scaffold.inspect.facts import Evidence, Fact

LINES_SHOWN = 6
PLACES_SHOWN = 3
VALUE_WIDTH = 240
LIST_WIDTH = 120


def print_drift(drift: Drift) -> None:
    """Print what changed; nothing for what did not."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    where = f", {drift.package}" if drift.package else ""
    console.print(f"[bold]{escape(drift.pipeline)}[/]  vllm-omni {drift.before} to {drift.after}{where}")
    if drift.gone is not None:
        console.print(f"\n[bold red]gone[/]  {escape(drift.gone)}")
    for fact in drift.facts:
        _print_fact(console, fact, drift)
    if drift.together:
        console.print("\n[bold]several facts together[/]")
        _print_hunks(console, drift.together)
    if drift.ported:
        console.print("\n[bold]code that lines are ported from[/]")
        _print_hunks(console, drift.ported)
    for change in drift.surface:
        _print_surface(console, change)
    if drift.rendering is not None and drift.gone is None:
        console.print(f"\n[yellow]note:[/] which rendered lines rest on a fact is not known: {escape(drift.rendering)}")
    console.print()
    console.print(_conclusion(drift))


def _print_fact(console: Console, fact: FactDrift, drift: Drift) -> None:
    change, resting = fact.change, fact.resting
    console.print(f"\n[bold]{change.name}[/]")
    old, new = _values(change.before, change.after)
    _print_value(console, drift.before, old, change.before)
    _print_value(console, drift.after, new, change.after)
    if resting is not None:
        if resting.hunks:
            _print_hunks(console, resting.hunks)
        elif resting.kept:
            console.print(f"  scaffold.toml has a value of its own: {', '.join(resting.kept)}", markup=False)
        elif resting.refused is None:
            console.print("  no rendered line rests on it")
    if fact.effect is not None and (fact.matters or resting is None):
        console.print(f"  [yellow]breaks:[/] {escape(fact.effect)}")


def _values(old: Fact, new: Fact) -> tuple[str, str]:
    """Return two values as text; of lists, what the one has and the other has not."""
    if isinstance(old.value, list) and isinstance(new.value, list):
        before, after = [canonical(entry) for entry in old.value], [canonical(entry) for entry in new.value]
        gone = [entry for entry, text in zip(old.value, before, strict=True) if text not in after]
        come = [entry for entry, text in zip(new.value, after, strict=True) if text not in before]
        if (gone or come) and max(len(json.dumps(fact.value, default=str)) for fact in (old, new)) > LIST_WIDTH:
            return _counted(old.value, "gone", gone), _counted(new.value, "new", come)
    return _cut(json.dumps(old.value, default=str)), _cut(json.dumps(new.value, default=str))


def _counted(entries: list[Any], word: str, some: list[Any]) -> str:
    which = f", {word}: {json.dumps(some, default=str)}" if some else ""
    return _cut(f"{len(entries)} entries{which}")


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_WIDTH else text[:VALUE_WIDTH] + "…"


def _print_value(console: Console, version: str, text: str, fact: Fact) -> None:
    known = "unknown" if fact.confidence == "unknown" else text
    sure = ", likely" if fact.confidence == "likely" else ""
    console.print(f"  {version:<10} {known}{sure}{_places(fact.evidence)}", markup=False)


def _places(evidence: Iterable[Evidence]) -> str:
    places = [f"{place.file}:{place.line}" for place in evidence]
    more = f" and {len(places) - PLACES_SHOWN} more" if len(places) > PLACES_SHOWN else ""
    return f"  ({', '.join(places[:PLACES_SHOWN])}{more})" if places else ""


def _print_hunks(console: Console, found: Iterable[Hunk]) -> None:
    for hunk in found:
        edited = "  (edited by hand near here)" if hunk.edited else ""
        console.print(f"  {hunk.file}:{hunk.line}{edited}", markup=False)
        for mark, lines in (("-", hunk.before), ("+", hunk.after)):
            for line in lines[:LINES_SHOWN]:
                console.print(f"    {mark} {line}", markup=False)
            if len(lines) > LINES_SHOWN:
                console.print(f"    {mark} … {len(lines) - LINES_SHOWN} more lines", markup=False)


def _print_surface(console: Console, change: SurfaceChange) -> None:
    console.print(f"\n[bold]{change.kind}[/] {escape(change.name)}  used in {escape(change.file)}:{change.line}")
    for label, found in (("before", change.before), ("after", change.after)):
        text = _cut(found.text) if found is not None else "not there"
        place = f"  ({found.place.file}:{found.place.line})" if found is not None and found.place is not None else ""
        console.print(f"  {label:<10} {text}{place}", markup=False)
    console.print(f"  [yellow]breaks:[/] {escape(change.effect)}")


def _conclusion(drift: Drift) -> str:
    if not drift.facts and not drift.surface and not drift.ported and drift.gone is None:
        return "no fact changed; nothing to do"
    if drift.affected is None:
        return f"{len(drift.facts)} facts changed; name a package to see what rests on them"
    matter = sum(fact.matters for fact in drift.facts)
    uses = len(drift.surface)
    counted = f"{len(drift.facts)} facts changed, rendered lines rest on {matter}; {uses} uses of upstream changed"
    if drift.ported:
        counted += f"; ported code changed in {len(drift.ported)} places"
    what = drift.package or "what `new` renders"
    if not drift.affected:
        return f"{counted}; {what} is not affected"
    if drift.gone is not None:
        return f"{what} cannot follow: the pipeline is gone; name its new place as module:Class"
    return f"{counted}; next: {drift.follow}"
