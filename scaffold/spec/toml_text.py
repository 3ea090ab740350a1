"""TOML as the tool writes it: a value, or a row of a table, is one line wherever that can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 120
ROW = 200  # a row of a table may be longer than a line of text
# Nearly every key and string needs no escape, and a writer set up for each took a third of `new`.
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_PLAIN_TEXT = re.compile(r'[^"\\\x00-\x08\x0a-\x1f\x7f]*')


def dumps(document: Mapping[str, Any], *, filled: bool = False) -> str:
    """Return a document as text; in each table plain values come first, else the order stays.

    Args:
        document: plain values; None stands nowhere in it.
        filled: the lines of a list of texts hold several each, for want of a person who comments them.
    """
    return "\n".join(_tables((), document, filled))


def _tables(path: tuple[str, ...], values: Mapping[str, Any], filled: bool, heading: str = "[{}]") -> Iterator[str]:
    """Yield a table, then those below it."""
    lines = {key: _entry(key, value, filled) for key, value in values.items() if path or not isinstance(value, Mapping)}
    plain = "".join(line for line in lines.values() if line is not None)
    if plain or not values:
        yield f"{heading.format('.'.join(map(_key, path)))}\n{plain}" if path else plain
    for key, value in values.items():
        if lines.get(key) is None and isinstance(value, Mapping):
            yield from _tables((*path, key), value, filled)
        elif lines.get(key) is None:
            for row in value:
                yield from _tables((*path, key), row, filled, "[[{}]]")


def _entry(key: str, value: Any, filled: bool) -> str | None:
    """Return the lines of one value; None for what stands below a heading of its own."""
    line = f"{_key(key)} = {_inline(value)}\n"
    if len(line) <= WIDTH or not value or not isinstance(value, Mapping | list | tuple):
        return line
    if isinstance(value, Mapping):
        return None
    if filled and all(isinstance(entry, str) for entry in value):
        return f"{_key(key)} = [\n{''.join(_filled(value))}]\n"
    rows = [f"    {_inline(entry)},\n" for entry in value]
    if all(isinstance(entry, Mapping) for entry in value) and max(map(len, rows)) > ROW:
        return None
    return f"{_key(key)} = [\n{''.join(rows)}]\n"


def _filled(texts: list[str] | tuple[str, ...]) -> Iterator[str]:
    """Yield lines that hold as many of the texts as they have room for."""
    line = "   "
    for text in map(_inline, texts):
        if len(line) + len(text) + 2 > WIDTH and line.strip():
            yield f"{line}\n"
            line = "   "
        line += f" {text},"
    yield f"{line}\n"


def _inline(value: Any) -> str:
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value):
        return f'"{value}"'
    if isinstance(value, Mapping):
        entries = ", ".join(f"{_key(key)} = {_inline(entry)}" for key, entry in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) in (int, float):
        return str(value)
    from tomli_w import dumps

    return dumps({"x": value}, multiline_strings=False).removeprefix("x = ").rstrip("\n")


def _key(key: str) -> str:
    if _BARE_KEY.fullmatch(key):
        return key
    from tomli_w import dumps

    return dumps({key: 0}).removesuffix(" = 0\n")
