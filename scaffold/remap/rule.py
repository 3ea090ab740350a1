"""One rule of a key map, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.remap.pattern import Pattern

Op = Literal["rename", "drop"]


@dataclass(frozen=True)
class Rule:
    """Renames the keys that ``source`` matches to ``target``, or drops them for a ``reason``.

    ``source`` and ``target`` are patterns (see ``pattern.py``): ``language_model.model.`` and an empty target take a
    prefix away; ``blocks.{n}.attn.`` to ``layers.{n}.self_attn.`` renames in every layer.

    Raises:
        ScaffoldError: a malformed pattern, or sides that do not go together.
    """

    source: str
    target: str | None
    op: Op = "rename"
    reason: str | None = None

    def __post_init__(self) -> None:
        """Validate, so that a rule that exists can be applied."""
        where = f"rule {quoted(self.source)}"
        if self.op not in get_args(Op):
            raise ScaffoldError(f"{where}: unknown op {quoted(self.op)}", hint=f"ops are {', '.join(get_args(Op))}")
        source = self.source_pattern
        if self.op == "drop":
            if self.target is not None:
                raise ScaffoldError(f"{where} drops keys and has the target {quoted(self.target)}")
            if not self.reason or not self.reason.strip():
                raise ScaffoldError(f"{where} drops keys without a reason")
            return
        if self.target is None:
            raise ScaffoldError(f"{where} renames keys and has no target")
        target = self.target_pattern
        if source.is_prefix != target.is_prefix:
            raise ScaffoldError(
                f"{where}: one side is a prefix and the other a whole key", hint="end both in a dot, or neither"
            )
        if source.placeholders != target.placeholders:
            raise ScaffoldError(f"{where}: {quoted(self.target)} does not have the same placeholders")

    @cached_property
    def source_pattern(self) -> Pattern:
        """The checkpoint's side."""
        return _parsed(self.source)

    @cached_property
    def target_pattern(self) -> Pattern:
        """The training module's side of a rename."""
        return _parsed(self.target or "")

    def forward(self, name: str) -> str | None:
        """Return the target of a checkpoint key that a rename matches, else None."""
        found = self.source_pattern.match(name) if self.op == "rename" else None
        return None if found is None else self.target_pattern.fill(*found)

    def backward(self, name: str) -> str | None:
        """Return the checkpoint key that this rename would make into a parameter's name, else None."""
        found = self.target_pattern.match(name) if self.op == "rename" else None
        return None if found is None else self.source_pattern.fill(*found)

    def to_data(self) -> dict[str, str]:
        """Return the rule as a table for TOML or JSON."""
        data = {"source": self.source}
        if self.target is not None:
            data["target"] = self.target
        data["op"] = self.op
        if self.reason is not None:
            data["reason"] = self.reason
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Rule:
        """Return the rule of such a table.

        Raises:
            ScaffoldError: a key is missing, unknown or no text.
        """
        if not isinstance(data, Mapping):
            raise ScaffoldError(f"a rule is a table, not {quoted(data)}")
        for key in data:
            if key not in ("source", "target", "op", "reason"):
                raise ScaffoldError(f"a rule has the unknown key {quoted(key)}")
            if not isinstance(data[key], str):
                raise ScaffoldError(f"a rule's {key} is no text but {quoted(data[key])}")
        if "source" not in data:
            raise ScaffoldError("a rule has no source")
        return cls(data["source"], data.get("target"), data.get("op", "rename"), data.get("reason"))


def _parsed(text: str) -> Pattern:
    pattern = Pattern(text)
    _ = pattern.parts
    return pattern
