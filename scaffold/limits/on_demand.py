"""Lazy imports: a package's module is imported when one of its public names is first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def on_demand(room: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package.

    Args:
        room: the package's dotted name.
        homes: each of its modules to the public names defined there, separated by spaces.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{room}.{home[name]}"), name)
        setattr(sys.modules[room], name, value)
        return value

    return get
