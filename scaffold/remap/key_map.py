"""An ordered table of rules, applied and inverted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap.rule import Rule


@dataclass(frozen=True, slots=True)
class Mapped:
    """A checkpoint key that becomes the parameter ``target``; ``rule`` is the rule's place in the table."""

    target: str
    rule: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A checkpoint key that is left out for ``reason``."""

    reason: str
    rule: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a map on a checkpoint.

    ``kind`` is ``unmatched``, ``collision``, ``dead_rule``, ``inverse`` or ``repeated``; ``name`` the key, target or
    rule source it is about; ``message`` a sentence without a final full stop.
    """

    kind: str
    name: str
    message: str


@dataclass(frozen=True)
class AppliedMap:
    """A map applied to a checkpoint: targets and reasons by key, matches by rule, and all problems."""

    targets: Mapping[str, Mapped]
    drops: Mapping[str, Dropped]
    matches: tuple[int, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class KeyMap:
    """Rules in order; the first that matches a key decides.

    The inverse takes the rename with the most specific target that leads back, so that a rule that strips a prefix
    and one that keeps a name can stand in one table.
    """

    rules: tuple[Rule, ...]

    def apply(self, name: str) -> Mapped | Dropped | None:
        """Return what becomes of a checkpoint key; None when no rule matches."""
        for place, rule in enumerate(self.rules):
            found = rule.source_pattern.match(name)
            if found is not None:
                if rule.op == "drop":
                    return Dropped(rule.reason or "", place)
                return Mapped(rule.target_pattern.fill(*found), place)
        return None

    def invert(self, name: str) -> str | None:
        """Return the checkpoint key of a parameter; None when no rule leads to it."""
        for rule in self._by_target:
            source = rule.backward(name)
            if source is not None:
                back = self.apply(source)
                if isinstance(back, Mapped) and back.target == name:
                    return source
        return None

    @cached_property
    def _by_target(self) -> list[Rule]:
        renames = [rule for rule in self.rules if rule.op == "rename"]
        return sorted(renames, key=lambda rule: -rule.target_pattern.weight)

    def apply_all(self, headers: CheckpointHeaders) -> AppliedMap:
        """Apply the map to every key of a checkpoint and collect what is wrong with it."""
        targets: dict[str, Mapped] = {}
        drops: dict[str, Dropped] = {}
        matches = [0] * len(self.rules)
        problems: list[Problem] = []
        first: dict[str, str] = {}
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
            other = first.setdefault(found.target, name)
            if other != name:
                message = f"{quoted(other)} and {quoted(name)} both become {quoted(found.target)}"
                problems.append(Problem("collision", found.target, message))
        for rule, count in zip(self.rules, matches, strict=True):
            if not count:
                message = f"the rule {quoted(rule.source)} matches no key, or only keys that a rule before it takes"
                problems.append(Problem("dead_rule", rule.source, message))
        for name, mapped in targets.items():
            problems.extend(self._round_trip(name, mapped.target, first[mapped.target]))
        return AppliedMap(targets, drops, tuple(matches), tuple(problems))

    def _round_trip(self, name: str, target: str, first: str) -> Iterable[Problem]:
        back = self.invert(target)
        if back != name and first == name:
            shown = "no key" if back is None else quoted(back)
            yield Problem("inverse", name, f"{quoted(name)} becomes {quoted(target)}, and that goes back to {shown}")
        again = self.apply(target)
        if isinstance(again, Dropped) or (isinstance(again, Mapped) and again.target != target):
            outcome = "is dropped" if isinstance(again, Dropped) else f"becomes {quoted(again.target)}"
            yield Problem("repeated", name, f"{quoted(target)} is a target, and {outcome} when mapped again")

    def to_data(self) -> list[dict[str, str]]:
        """Return the rules as tables for TOML or JSON."""
        return [rule.to_data() for rule in self.rules]

    @classmethod
    def from_data(cls, data: Iterable[Mapping[str, Any]]) -> KeyMap:
        """Return the map of such tables.

        Raises:
            ScaffoldError: not a list of rules, or a rule that is malformed.
        """
        if isinstance(data, str | Mapping) or not isinstance(data, Iterable):
            raise ScaffoldError("rules are a list of tables")
        return cls(tuple(Rule.from_data(entry) for entry in data))
