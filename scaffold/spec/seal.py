"""The digest that a file carries of itself: whether anybody has edited it since it was written."""

from __future__ import annotations

import re

from scaffold.digest import sha256_hex

_LINE = re.compile(r'^digest = "([0-9a-f]{64})"\n', re.MULTILINE)
_SCHEMA = r"(?m)^schema = \d+\n"


def seal(text: str) -> str:
    """Return the text with the SHA-256 of all its other lines behind the line of the schema."""
    bare = _LINE.sub("", text, count=1)
    schema = re.search(_SCHEMA, bare)
    end = schema.end() if schema else 0
    return f'{bare[:end]}digest = "{sha256_hex(bare)}"\n{bare[end:]}'


def is_sealed(text: str) -> bool:
    """Whether the text is exactly what `seal` returned."""
    found = _LINE.search(text)
    return found is not None and found[1] == sha256_hex(_LINE.sub("", text, count=1))
