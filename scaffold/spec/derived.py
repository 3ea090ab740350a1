"""Digests of the values that the tool itself gave a spec: what differs from its digest was changed by a person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from scaffold.files.digest import sha256_hex


def digests(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return ``section.key`` to the digest of its value; what could not be established has none."""
    return {
        f"{section}.{key}": digest(value)
        for section, values in sections.items()
        for key, value in values.items()
        if value is not None
    }


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits; the same for a value and for what TOML makes of it."""
    return sha256_hex(json.dumps(comparable(value), sort_keys=True, default=str))[:16]


def comparable(value: Any) -> Any:
    """Return a value as TOML keeps it, which knows neither None in a table nor tuples; true and 1 stay apart."""
    if isinstance(value, Mapping):
        return {key: comparable(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [comparable(entry) for entry in value]
    return ("bool", value) if isinstance(value, bool) else value
