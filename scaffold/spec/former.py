"""What a spec of an older version of the tool spelled otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaffold.spec.derived import digest

# Settings of guidance were lists of tables with name and default; now they are one table.
_SETTINGS = (("cfg", "parameters"), ("guidance", "defaults"))


def with_settings(
    sections: Mapping[str, Any], derived: Mapping[str, str]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return sections and digests in which settings of guidance are tables by name."""
    found, told = {name: dict(values) for name, values in sections.items()}, dict(derived)
    for section, key in _SETTINGS:
        entries = found.get(section, {}).get(key)
        if isinstance(entries, list) and all(isinstance(e, Mapping) and {"name", "default"} <= set(e) for e in entries):
            del found[section][key]
            found[section]["defaults"] = {str(entry["name"]): entry["default"] for entry in entries}
            was = told.pop(f"{section}.{key}", None)
            if was == digest(entries):
                told[f"{section}.defaults"] = digest(found[section]["defaults"])
            elif was is not None:
                told[f"{section}.defaults"] = was
    return found, told
