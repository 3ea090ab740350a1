"""Makes untrusted text safe to show: names, versions and messages from sources and files.

All text shown on a terminal, in a log or on a page passes through here. Characters that control a terminal, change the
text direction, have no width or no UTF-8 encoding are shown as escapes.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ORDER = re.compile(r"##(?=\w*\[)")


def printable(text: object) -> str:
    """``text`` on one line, its runs of blanks one blank each: a name, a message."""
    return printable_command(" ".join(str(text).split()))


def printable_command(text: object) -> str:
    """A shell line, or a line of source, as :func:`printable` does, but with its blanks kept."""
    return no_command("".join(c if c.isprintable() else _escaped(c) for c in str(text)))


def no_command(line: str) -> str:
    """A line that no CI runner reads as a command: neither ``::error::`` at its start nor ``##[error]`` in it.

    Runners other than GitHub's put their own word before the bracket.
    """
    line = _ORDER.sub(r"#\\x23", line)
    return line.replace("::", r"\x3a:", 1) if line.lstrip().startswith("::") else line


def json_text(answer: Any) -> str:
    """JSON of several lines, without an end of line, that no CI runner reads as a command: a string may hold one.

    Its lines begin with blanks, braces and quotes alone.
    """
    return _ORDER.sub(r"#\\u0023", json.dumps(answer, indent=2))


def printable_lines(text: str) -> str:
    """Text of several lines, such as a difference of files, its line ends and tabs kept."""
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
