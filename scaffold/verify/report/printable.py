"""Text of a package, safe to show: it comes from code that nobody has read yet."""

from __future__ import annotations


def printable(text: object) -> str:
    """``text`` on one line; control, direction-changing and unpaired surrogate characters are shown escaped."""
    line = " ".join(str(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in line)


def printable_command(text: object) -> str:
    """A shell line as :func:`printable` does, but with its blanks kept: they may be inside quotes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))
