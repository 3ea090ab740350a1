"""What the engine's questions about its surroundings answer on one device: one module a subject, found by walking.

A module has any of ``CALLS`` (last name of a function of the engine to the literal it returns), ``VALUES`` (name, or
member of a class, to literal), ``FIRST_ARGUMENT`` (functions that return their first argument there), ``METHODS`` (name
of an object to the literals that its methods return), ``ATTRIBUTES`` (functions to the literals of attributes of what
they return), ``LIBRARY`` (functions to the class of a library that they make an object of), ``DEVICES`` (functions that
return the device) and ``ASSUMED`` (those of the above that are true of training only as long as nobody asks for what
the engine can do besides; the port lists where they were used).
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache


@cache
def table(name: str) -> dict[str, str]:
    """Return one table over all subjects."""
    found: dict[str, str] = {}
    for module in _modules():
        found |= dict(getattr(module, name, {}))
    return found


@cache
def methods_of(name: str) -> dict[str, str]:
    """Return the answers of an object's methods."""
    return {key: text for module in _modules() for key, text in getattr(module, "METHODS", {}).get(name, {}).items()}


@cache
def attributes_of(name: str) -> dict[str, str]:
    """Return the answers of attributes of what a function returns."""
    return {key: text for module in _modules() for key, text in getattr(module, "ATTRIBUTES", {}).get(name, {}).items()}


@cache
def names(name: str) -> frozenset[str]:
    """Return one set of names over all subjects."""
    return frozenset(entry for module in _modules() for entry in getattr(module, name, ()))


@cache
def _modules() -> tuple[object, ...]:
    return tuple(importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
