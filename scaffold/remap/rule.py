"""One rule of a key map, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap.pattern import Pattern

Op = Literal["rename", "split", "join", "drop"]
MAX_PARTS = 64
MAX_AXIS = 63
_KINDS: dict[str, type] = {"axis": int, "parts": list, "sizes": list}
_KEYS = ("source", "target", "op", "parts", "axis", "sizes", "reason", "origin")


class Match(NamedTuple):
    """A key that a rule takes: which of its sources it is, the placeholders' digits, the rest after a prefix."""

    place: int
    numbers: dict[str, str]
    rest: str


@dataclass(frozen=True)
class Rule:
    """What the matching checkpoint keys map to.

    - ``rename``: ``source`` becomes ``target``. A ``reason`` says why names that look exchanged are not.
    - ``split``: ``source`` holds several parameters, ``parts``, one after the other along ``axis``.
    - ``join``: several keys, ``parts``, make one parameter, ``target``, one after the other along ``axis``; ``sizes``
      are their lengths along it, equal ones where it is None.
    - ``drop``: the key is left out for a ``reason``.

    ``source``, ``target`` and ``parts`` are patterns (see ``pattern.py``): ``language_model.model.`` and an empty
    target take a prefix away; ``blocks.{n}.attn.`` to ``layers.{n}.self_attn.`` renames in every layer. ``origin`` says
    who made the rule; it decides nothing.

    Raises:
        ScaffoldError: a malformed pattern, or values that do not go together.
    """

    source: str | None
    target: str | None
    op: Op = "rename"
    reason: str | None = None
    parts: tuple[str, ...] = ()
    axis: int = 0
    sizes: tuple[int, ...] | None = None
    origin: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Validate, so that every rule can be applied."""
        if self.op not in get_args(Op):
            raise ScaffoldError(
                f"{self._where}: unknown op {quoted(self.op)}", hint=f"ops are {', '.join(get_args(Op))}"
            )
        if self.source is None and self.op != "join":
            raise ScaffoldError(f"a rule to {self.op} has no source")
        if self.op == "drop":
            if self.target is not None:
                raise ScaffoldError(f"{self._where} drops keys and has the target {quoted(self.target)}")
            if not self.reason or not self.reason.strip():
                raise ScaffoldError(f"{self._where} drops keys without a reason")
        elif self.op == "rename" and self.target is None:
            raise ScaffoldError(f"{self._where} renames keys and has no target")
        self._check_parts()
        self._check_sides()

    def _check_parts(self) -> None:
        if self.op in ("rename", "drop"):
            if self.parts or self.axis or self.sizes is not None:
                raise ScaffoldError(f"{self._where}: parts, axis and sizes belong to split and join")
            return
        if self.op == "split" and self.target is not None:
            raise ScaffoldError(f"{self._where} splits keys and has a target", hint="its parts are the targets")
        if self.op == "join" and self.source is not None:
            raise ScaffoldError(f"{self._where} joins keys and has a source", hint="its parts are the sources")
        if self.op == "join" and self.target is None:
            raise ScaffoldError(f"{self._where} joins keys and has no target")
        if not 2 <= len(self.parts) <= MAX_PARTS or len(set(self.parts)) != len(self.parts):
            raise ScaffoldError(f"{self._where}: {self.op} takes two to {MAX_PARTS} different parts")
        if not 0 <= self.axis <= MAX_AXIS:
            raise ScaffoldError(f"{self._where}: axis {self.axis} is not between 0 and {MAX_AXIS}")
        if self.sizes is not None:
            if self.op == "split":
                raise ScaffoldError(f"{self._where}: a split has no sizes", hint="its parameters have them")
            if len(self.sizes) != len(self.parts) or any(size < 1 for size in self.sizes):
                raise ScaffoldError(f"{self._where}: sizes are one positive number for each part")

    def _check_sides(self) -> None:
        first, *others = self.source_patterns + self.target_patterns
        for other in others:
            if first.is_prefix != other.is_prefix:
                raise ScaffoldError(
                    f"{self._where}: one side is a prefix and the other a whole key",
                    hint="end both in a dot, or neither",
                )
            if first.placeholders != other.placeholders:
                raise ScaffoldError(f"{self._where}: {quoted(other.text)} does not have the same placeholders")

    @property
    def sources(self) -> tuple[str, ...]:
        """The checkpoint's side: one pattern, for a join several."""
        return self.parts if self.op == "join" else (self.source or "",)

    @property
    def targets(self) -> tuple[str, ...]:
        """The training module's side: one pattern, for a split several, for a drop none."""
        if self.op == "drop":
            return ()
        return self.parts if self.op == "split" else (self.target or "",)

    @property
    def label(self) -> str:
        """The rule's source as errors and tables name it."""
        return " + ".join(self.sources)

    @property
    def _where(self) -> str:
        return f"rule {quoted(self.label if self.op == 'join' else self.source)}"

    @cached_property
    def source_patterns(self) -> tuple[Pattern, ...]:
        """The patterns of ``sources``."""
        return tuple(_parsed(text) for text in self.sources)

    @cached_property
    def target_patterns(self) -> tuple[Pattern, ...]:
        """The patterns of ``targets``."""
        return tuple(_parsed(text) for text in self.targets)

    def match(self, name: str) -> Match | None:
        """Return how a checkpoint key matches, None where it does not."""
        for place, pattern in enumerate(self.source_patterns):
            found = pattern.match(name)
            if found is not None:
                return Match(place, *found)
        return None

    def forward(self, match: Match) -> tuple[str, ...]:
        """Return the parameters that a matching key goes into; none for a drop."""
        return tuple(pattern.fill(match.numbers, match.rest) for pattern in self.target_patterns)

    def backward(self, name: str, place: int = 0) -> tuple[str, ...] | None:
        """Return the checkpoint keys that make a parameter, if it is what the target at ``place`` leads to."""
        found = self.target_patterns[place].match(name)
        return None if found is None else tuple(pattern.fill(*found) for pattern in self.source_patterns)

    def to_data(self) -> dict[str, Any]:
        """Return the rule as a table for TOML or JSON."""
        data: dict[str, Any] = {"source": self.source, "target": self.target, "op": self.op}
        if self.parts:
            data |= {"parts": list(self.parts), "axis": self.axis}
        data |= {"sizes": list(self.sizes) if self.sizes else None, "reason": self.reason, "origin": self.origin}
        return {key: value for key, value in data.items() if value is not None}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Rule:
        """Return the rule of such a table.

        Raises:
            ScaffoldError: a key is missing, unknown or of another type.
        """
        if not isinstance(data, Mapping):
            raise ScaffoldError(f"a rule is a table, not {quoted(data)}")
        for key, value in data.items():
            if key not in _KEYS:
                raise ScaffoldError(f"a rule has the unknown key {quoted(key)}", hint=f"keys are {', '.join(_KEYS)}")
            kind = _KINDS.get(key, str)
            if not isinstance(value, kind) or isinstance(value, bool):
                wanted = {str: "text", int: "a whole number", list: "a list"}[kind]
                raise ScaffoldError(f"a rule's {key} is not {wanted} but {quoted(value)}")
        op = data.get("op", "rename")
        if op != "join" and "source" not in data:
            raise ScaffoldError("a rule has no source")
        parts, sizes = data.get("parts", []), data.get("sizes")
        for part in parts:
            if not isinstance(part, str):
                raise ScaffoldError(f"a rule's part is not text but {quoted(part)}")
        for size in sizes or ():
            if type(size) is not int:
                raise ScaffoldError(f"a rule's size is not a whole number but {quoted(size)}")
        return cls(
            data.get("source"),
            data.get("target"),
            op,
            data.get("reason"),
            tuple(parts),
            data.get("axis", 0),
            None if sizes is None else tuple(sizes),
            data.get("origin"),
        )


def _parsed(text: str) -> Pattern:
    pattern = Pattern(text)
    _ = pattern.parts
    return pattern
