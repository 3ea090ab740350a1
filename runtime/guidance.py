"""Settings of guidance, under whatever name and type a request or a configuration gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def resolve_settings(
    overrides: Mapping[str, Any], defaults: Mapping[str, Any], others: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """Fill in defaults and bring the values to one type, whether they come from JSON, Hydra or Python.

    Args:
        overrides: values by name; names that are not asked for and None are passed over.
        defaults: value of each setting; its type is the setting's: text, a tuple of numbers, or else a number.
        others: names that are asked next, in order, where a setting is not given under its own.
    """
    resolved: dict[str, Any] = {}
    for name, default in defaults.items():
        asked = (overrides.get(key) for key in (name, *(others or {}).get(name, ())))
        value = next((found for found in asked if found is not None), default)
        if isinstance(default, tuple):
            resolved[name] = tuple(float(bound) for bound in value)
        else:
            resolved[name] = str(value) if isinstance(default, str) else float(value)
    return resolved


def setting_names(defaults: Mapping[str, Any], others: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every name under which a setting may be given."""
    return tuple(dict.fromkeys([*defaults, *(name for names in others.values() for name in names)]))
