"""What a rule reports, and what the user is shown of it."""

# Annotations are evaluated here: a NamedTuple would compile each that is left as a string, at every start.

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Severity = Literal["error", "warning"]
Safety = Literal["safe", "unsafe"]


class Span(NamedTuple):
    """A stretch of text: lines and columns from 1, columns in characters, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class Fix(NamedTuple):
    """How to remove a finding; computed only when somebody wants it.

    Attributes:
        safety: ``safe`` where the behaviour that was meant is certain.
        texts: returns path (as `Finding.path`) -> the file's whole new text; empty where it turns out impossible.
        sources: returns the text that a path has now, empty for a file that is not there.
    """

    safety: Safety
    texts: Callable[[], dict[str, str]]
    sources: Callable[[str], str]


class Finding(NamedTuple):
    """One finding of one rule; two are equal that say the same of the same place.

    Attributes:
        path: as shown: relative to the working directory where the file lies below it, POSIX slashes.
        line, column, end_line, end_column: from 1, in characters, the end exclusive.
        rule: identifier, ``OSC103``.
        message: what is wrong, one line without a final full stop.
        severity: ``error`` or ``warning``.
        help: what to do about it, one line; None where the message says it.
        checklist: checklist items and pitfalls that the rule stands for, ``M3, pitfall 32``.
        fix: how to remove it, where the rule knows.
        source: the line of text at ``line``, without its end.
        key: path of the file inside its tree; stays the same wherever the tree lies.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    rule: str
    message: str
    severity: Severity = "error"
    help: str | None = None
    checklist: str = ""
    fix: Fix | None = None
    source: str = ""
    key: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Finding) and self[:7] == other[:7]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:7])

    def __lt__(self, other: Any) -> bool:
        return bool(self[:7] < other[:7])

    @property
    def fixable(self) -> bool:
        """Whether ``--fix`` or ``--unsafe-fixes`` can remove it."""
        return self.fix is not None
