"""How a name that came from a file is shown in an error."""

from __future__ import annotations

_LIMIT = 120


def quoted(name: object) -> str:
    """Return a short, printable, quoted form of a name; control characters and lone surrogates appear escaped."""
    text = repr(name)
    return text if len(text) <= _LIMIT else f"{text[: _LIMIT - 20]}…{text[-16:]}"
