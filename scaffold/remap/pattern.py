"""The pattern language of rules: text, ``{n}`` for a number, nothing else.

A pattern is anchored at the start of a key. One that is empty or ends in a dot matches every key that goes on from
there; any other matches whole keys. ``{{`` and ``}}`` stand for braces that are part of a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")


@dataclass(frozen=True)
class Pattern:
    """One side of a rule; ``parts`` alternates between literal text and placeholder names, text first and last.

    Raises:
        ScaffoldError: a lone brace, a placeholder that is not an identifier or occurs twice, or two in a row.
    """

    text: str

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Return literal text at even places and placeholder names at odd ones."""
        parts = [""]
        for token in _TOKEN.finditer(self.text):
            found = token.group()
            if found in ("{{", "}}"):
                parts[-1] += found[0]
            elif token.group(1) is not None:
                if not token.group(1).isidentifier():
                    raise ScaffoldError(
                        f"rule {quoted(self.text)}: {found} is not a placeholder", hint="write {n}, or {{ for a brace"
                    )
                if len(parts) > 1 and not parts[-1]:
                    raise ScaffoldError(f"rule {quoted(self.text)}: two placeholders with nothing between them")
                parts += [token.group(1), ""]
            elif found in "{}":
                raise ScaffoldError(f"rule {quoted(self.text)}: a brace on its own", hint="write {{ or }} for a brace")
            else:
                parts[-1] += found
        if len(set(parts[1::2])) != len(parts) // 2:
            raise ScaffoldError(f"rule {quoted(self.text)}: the same placeholder twice")
        return tuple(parts)

    @cached_property
    def is_prefix(self) -> bool:
        """Whether the pattern matches keys that go on after it."""
        return not self.text or self.parts[-1].endswith(".")

    @property
    def placeholders(self) -> frozenset[str]:
        """The names between braces."""
        return frozenset(self.parts[1::2])

    @property
    def weight(self) -> int:
        """How specific the pattern is: the length of its literal text."""
        return sum(len(part) for part in self.parts[::2])

    @cached_property
    def expression(self) -> str:
        """The pattern as a regular expression without groups, to be matched from the start of a name."""
        return "".join(self._pieces("[0-9]+"))

    @cached_property
    def _groups(self) -> re.Pattern[str]:
        return re.compile("".join(self._pieces("(?P<{}>[0-9]+)")), re.ASCII)

    def _pieces(self, number: str) -> list[str]:
        pieces = [number.format(part) if place % 2 else re.escape(part) for place, part in enumerate(self.parts)]
        return pieces if self.is_prefix else [*pieces, r"\Z"]

    def match(self, name: str) -> tuple[dict[str, str], str] | None:
        """Return the placeholders' digits and the rest of the name after a prefix, or None."""
        if len(self.parts) == 1:
            literal = self.parts[0]
            if self.is_prefix:
                return ({}, name[len(literal) :]) if name.startswith(literal) else None
            return ({}, "") if name == literal else None
        found = self._groups.match(name)
        return None if found is None else (found.groupdict(), name[found.end() :])

    def fill(self, numbers: dict[str, str], rest: str) -> str:
        """Return the name with the placeholders' digits and the rest put in."""
        return "".join(numbers[part] if place % 2 else part for place, part in enumerate(self.parts)) + rest


def literal(name: str) -> str:
    """Return the pattern text that matches exactly this piece of a key."""
    return name.replace("{", "{{").replace("}", "}}")
