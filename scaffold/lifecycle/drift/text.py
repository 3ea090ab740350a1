"""Prints a comparison: one block for each change, then what to do next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scaffold.lifecycle.drift.facts import canonical
from scaffold.terminal.console import SafeConsole, said

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaffold.inspect.facts import Evidence, Fact
    from scaffold.lifecycle.drift.facts import ExecutedChange
    from scaffold.lifecycle.drift.hunks import Hunk
    from scaffold.lifecycle.drift.report import Drift, FactDrift
    from scaffold.lifecycle.drift.surface import SurfaceChange

LINES_SHOWN = 6
PLACES_SHOWN = 3
VALUE_WIDTH = 240
LIST_WIDTH = 120


def print_drift(drift: Drift) -> None:
    """Print what changed."""
    console = SafeConsole(soft_wrap=True)
    where = f", {drift.package}" if drift.package else ""
    console.print(said((drift.pipeline, "bold"), f"  vllm-omni {drift.before} to {drift.after}{where}"))
    if drift.gone is not None:
        console.print()
        console.print(said(("gone", "bold red"), f"  {drift.gone}"))
    for fact in drift.facts:
        _print_fact(console, fact, drift)
    if drift.together:
        console.print("\nseveral facts together", style="bold")
        _print_hunks(console, drift.together)
    for changed in drift.executed:
        _print_executed(console, changed)
    if drift.ported:
        console.print("\nlines of the package that name or take over code of vllm-omni", style="bold")
        _print_hunks(console, drift.ported)
    if drift.formula:
        console.print("\nwhat rollouts were seen to step with (formula.txt, and git)", style="bold")
        for line in drift.formula:
            console.print(said(f"  {_cut(line)}"))
    for change in drift.surface:
        _print_surface(console, change)
    if drift.rendering is not None and drift.gone is None:
        console.print()
        console.print(
            said(("note:", "yellow"), f" which rendered lines rest on a fact is not known: {drift.rendering}")
        )
    console.print()
    console.print(said(_conclusion(drift)))


def _print_executed(console: SafeConsole, change: ExecutedChange) -> None:
    what = "is gone" if change.gone else f"changed: {', '.join(change.changed) or 'comments alone'}"
    console.print()
    console.print(said((change.file, "bold"), f"  which the package executes, {what}"))


def _print_fact(console: SafeConsole, fact: FactDrift, drift: Drift) -> None:
    change, dependents = fact.change, fact.dependents
    console.print()
    console.print(said((change.name, "bold")))
    old, new = _values(change.before, change.after)
    _print_value(console, drift.before, old, change.before)
    _print_value(console, drift.after, new, change.after)
    if dependents is not None:
        if dependents.hunks:
            _print_hunks(console, dependents.hunks)
        elif dependents.kept:
            console.print(said(f"  scaffold.toml has a value of its own: {', '.join(dependents.kept)}"))
        elif dependents.refused is None:
            console.print("  no rendered line rests on it")
    if fact.effect is not None and (fact.matters or dependents is None):
        console.print(said(("  breaks:", "yellow"), f" {fact.effect}"))


def _values(old: Fact, new: Fact) -> tuple[str, str]:
    """Return two values as text; for lists, the elements only one of them has."""
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


def _print_value(console: SafeConsole, version: str, text: str, fact: Fact) -> None:
    known = "unknown" if fact.confidence == "unknown" else text
    sure = ", likely" if fact.confidence == "likely" else ""
    console.print(said(f"  {version:<10} {known}{sure}{_places(fact.evidence)}"))


def _places(evidence: Iterable[Evidence]) -> str:
    places = [f"{place.file}:{place.line}" for place in evidence]
    more = f" and {len(places) - PLACES_SHOWN} more" if len(places) > PLACES_SHOWN else ""
    return f"  ({', '.join(places[:PLACES_SHOWN])}{more})" if places else ""


def _print_hunks(console: SafeConsole, found: Iterable[Hunk]) -> None:
    for hunk in found:
        edited = "  (edited by hand near here)" if hunk.edited else ""
        console.print(said(f"  {hunk.file}:{hunk.line}{edited}"))
        for mark, lines in (("-", hunk.before), ("+", hunk.after)):
            for line in lines[:LINES_SHOWN]:
                console.print(said(f"    {mark} {line}"))
            if len(lines) > LINES_SHOWN:
                console.print(said(f"    {mark} … {len(lines) - LINES_SHOWN} more lines"))


def _print_surface(console: SafeConsole, change: SurfaceChange) -> None:
    console.print()
    console.print(said((change.kind, "bold"), f" {change.name}  used in {change.file}:{change.line}"))
    for label, found in (("before", change.before), ("after", change.after)):
        text = _cut(found.text) if found is not None else "not there"
        place = f"  ({found.place.file}:{found.place.line})" if found is not None and found.place is not None else ""
        console.print(said(f"  {label:<10} {text}{place}"))
    console.print(said(("  breaks:", "yellow"), f" {change.effect}"))


def _conclusion(drift: Drift) -> str:
    if not drift.facts and not drift.surface and not drift.ported and not drift.executed and drift.gone is None:
        if drift.formula:
            return "no fact changed; the formula did: look at formula.txt, and train anew from where it is right"
        return "no fact changed; nothing to do"
    if drift.affected is None:
        return f"{len(drift.facts)} facts changed; name a package to see what rests on them"
    matter = sum(fact.matters for fact in drift.facts)
    uses = len(drift.surface)
    counted = f"{len(drift.facts)} facts changed, rendered lines rest on {matter}; {uses} uses of upstream changed"
    if drift.ported:
        counted += f"; code that is taken over changed in {len(drift.ported)} places"
    if drift.executed:
        counted += f"; {len(drift.executed)} files of the denoiser changed: `verify` proves the new ones"
    what = drift.package or "what `new` renders"
    if not drift.affected:
        return f"{counted}; {what} is not affected"
    if drift.gone is not None:
        return f"{what} cannot follow: the pipeline is gone; name its new place as module:Class"
    return f"{counted}; next: {drift.follow}"
