"""Text of others, safe to show: names, versions and messages come from sources and files that nobody has read yet.

What a person sees on a terminal, in a log or on a page goes through here. Characters that act on a terminal, change
the direction of writing, take no room or have no form in UTF-8 are shown as escapes; none of them is printable.
"""

from __future__ import annotations

import re

_ORDER = re.compile(r"##(?=\w*\[)")


def printable(text: object) -> str:
    """``text`` on one line, its runs of blanks one blank each: a name, a message."""
    return printable_command(" ".join(str(text).split()))


def printable_command(text: object) -> str:
    """A shell line, or a line of source, as :func:`printable` does, but with its blanks kept."""
    return no_command("".join(c if c.isprintable() else _escaped(c) for c in str(text)))


def no_command(line: str) -> str:
    """A line that no runner of CI takes for an order: neither ``::error::`` at its start nor ``##[error]`` in it.

    Other runners than GitHub's put a word of their own before the bracket.
    """
    line = _ORDER.sub(r"#\\x23", line)
    return line.replace("::", r"\x3a:", 1) if line.lstrip().startswith("::") else line


def printable_lines(text: str) -> str:
    """Text of several lines, such as a difference of files, its line ends and tabs kept."""
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
