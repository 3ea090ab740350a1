"""An ordered table of rules, applied and inverted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap.pattern import Pattern
from scaffold.remap.rule import Match, Rule


@dataclass(frozen=True, slots=True)
class Mapped:
    """A checkpoint key that becomes a parameter.

    ``rule`` is the rule's place in the table. ``target`` is the parameter; a split has ``more`` after it, in the order
    in which the key holds them. ``place`` says which of its parts a key is to the parameter of a join.
    """

    target: str
    rule: int
    more: tuple[str, ...] = ()
    place: int = 0

    @property
    def targets(self) -> tuple[str, ...]:
        """All parameters that the key goes into."""
        return (self.target, *self.more)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A checkpoint key that is left out for ``reason``."""

    reason: str
    rule: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a map on a checkpoint.

    ``kind`` is ``unmatched``, ``collision``, ``incomplete``, ``dead_rule``, ``inverse`` or ``repeated``; ``name`` the
    key, target or rule source it is about; ``message`` a sentence without a final full stop.
    """

    kind: str
    name: str
    message: str


@dataclass(frozen=True)
class AppliedMap:
    """A map applied to a checkpoint.

    ``targets`` and ``drops`` are by key, ``sources`` has the keys of each parameter in the order of their parts,
    ``matches`` counts by rule.
    """

    targets: Mapping[str, Mapped]
    drops: Mapping[str, Dropped]
    sources: Mapping[str, tuple[str, ...]]
    matches: tuple[int, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class KeyMap:
    """Rules in order; the first that matches a key decides.

    The inverse uses the matching rule with the most specific target, so that a table can have both a rule that strips a
    prefix and one that keeps a name.
    """

    rules: tuple[Rule, ...]

    def apply(self, name: str) -> Mapped | Dropped | None:
        """Return what a checkpoint key maps to; None if no rule matches."""
        first = self._by_source[1].first(name)
        if first is None:
            return None
        number, place = self._by_source[0][first]
        rule = self.rules[number]
        found = rule.source_patterns[place].match(name)
        targets = rule.forward(Match(place, *found)) if found is not None else ()
        if not targets:
            return Dropped(rule.reason or "", number)
        return Mapped(targets[0], number, targets[1:], place)

    def inverse(self, name: str) -> tuple[str, ...]:
        """Return the checkpoint keys that make a parameter, in the order of a join; none when no rule leads to it."""
        sides, screen = self._by_target
        first = screen.first(name)
        for rule, place in sides[first:] if first is not None else ():
            sources = rule.backward(name, place)
            if sources is not None and all(self._leads(source, name) for source in sources):
                return sources
        return ()

    def invert(self, name: str) -> str | None:
        """Return the one checkpoint key that a parameter is in; None when there is none, or several to be joined."""
        sources = self.inverse(name)
        return sources[0] if len(sources) == 1 else None

    def _leads(self, source: str, name: str) -> bool:
        found = self.apply(source)
        return isinstance(found, Mapped) and name in found.targets

    @cached_property
    def _by_source(self) -> tuple[list[tuple[int, int]], _Screen]:
        sides = [(number, place) for number, rule in enumerate(self.rules) for place in range(len(rule.sources))]
        return sides, _Screen([self.rules[number].source_patterns[place] for number, place in sides])

    @cached_property
    def _by_target(self) -> tuple[list[tuple[Rule, int]], _Screen]:
        sides = [(rule, place) for rule in self.rules for place in range(len(rule.targets))]
        sides.sort(key=lambda side: -side[0].target_patterns[side[1]].weight)
        return sides, _Screen([rule.target_patterns[place] for rule, place in sides])

    def apply_all(self, headers: CheckpointHeaders) -> AppliedMap:
        """Apply the map to every key of a checkpoint and collect what is wrong with it."""
        targets: dict[str, Mapped] = {}
        drops: dict[str, Dropped] = {}
        filled: dict[str, dict[int, str]] = {}
        matches = [0] * len(self.rules)
        problems: list[Problem] = []
        for name in headers.tensors:
            found = self.apply(name)
            if found is None:
                problems.append(Problem("unmatched", name, f"no rule matches the checkpoint key {quoted(name)}"))
                continue
            matches[found.rule] += 1
            if isinstance(found, Dropped):
                drops[name] = found
                continue
            targets[name] = found
            for target in found.targets:
                taken = filled.setdefault(target, {})
                first = next(iter(taken.values()), name)
                if first != name and (found.place in taken or targets[first].rule != found.rule):
                    message = f"{quoted(first)} and {quoted(name)} both become {quoted(target)}"
                    problems.append(Problem("collision", target, message))
                taken.setdefault(found.place, name)
        for rule, count in zip(self.rules, matches, strict=True):
            if not count:
                message = f"the rule {quoted(rule.label)} matches no key, or only keys that a rule before it takes"
                problems.append(Problem("dead_rule", rule.label, message))
        sources = {target: tuple(taken[place] for place in sorted(taken)) for target, taken in filled.items()}
        for target, taken in filled.items():
            problems.extend(self._incomplete(target, taken, targets))
            problems.extend(self._not_back(target, sources[target]))
            problems.extend(self._repeated(target, sources[target][0]))
        return AppliedMap(targets, drops, sources, tuple(matches), tuple(problems))

    def _incomplete(self, target: str, taken: Mapping[int, str], targets: Mapping[str, Mapped]) -> Iterable[Problem]:
        first = next(iter(taken.values()))
        rule = self.rules[targets[first].rule]
        if rule.op == "join" and len(taken) < len(rule.parts):
            parts = rule.backward(target) or rule.parts
            missing = next(part for place, part in enumerate(parts) if place not in taken)
            message = f"{quoted(target)} is joined from {len(parts)} keys, and the checkpoint lacks {quoted(missing)}"
            yield Problem("incomplete", target, message)

    def _not_back(self, target: str, sources: tuple[str, ...]) -> Iterable[Problem]:
        back = self.inverse(target)
        for name in sources:
            if name not in back:
                shown = quoted(" + ".join(back)) if back else "no key"
                message = f"{quoted(name)} becomes {quoted(target)}, and that goes back to {shown}"
                yield Problem("inverse", name, message)

    def _repeated(self, target: str, name: str) -> Iterable[Problem]:
        again = self.apply(target)
        if isinstance(again, Dropped) or (isinstance(again, Mapped) and again.targets != (target,)):
            outcome = "is dropped" if isinstance(again, Dropped) else f"becomes {quoted(' + '.join(again.targets))}"
            yield Problem("repeated", name, f"{quoted(target)} is a target, and {outcome} when mapped again")

    def to_data(self) -> list[dict[str, Any]]:
        """Return the rules as tables for TOML or JSON."""
        return [rule.to_data() for rule in self.rules]

    @classmethod
    def from_data(cls, data: Iterable[Mapping[str, Any]]) -> KeyMap:
        """Return the map of such tables.

        Raises:
            ScaffoldError: not a list of rules, or a rule that is malformed.
        """
        if isinstance(data, (str, Mapping)) or not isinstance(data, Iterable):
            raise ScaffoldError("rules are a list of tables")
        return cls(tuple(Rule.from_data(entry) for entry in data))


class _Screen:
    """Patterns in order; the first that fits decides.

    A map of hundreds of rules meets checkpoints of a hundred thousand keys, too many for a loop over both in Python.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)
        # An empty group behind each alternative tells which one it was.
        alternatives = "|".join(f"{pattern.expression}()" for pattern in self._patterns)
        self._expression = re.compile(alternatives, re.ASCII) if self._patterns else None

    def first(self, name: str) -> int | None:
        """Return the place of the first pattern that fits; None where none does."""
        found = self._expression.match(name) if self._expression is not None else None
        return found.lastindex - 1 if found is not None and found.lastindex is not None else None
