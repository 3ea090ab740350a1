"""Known bugs, one module a subject; each module has ``BUGS``."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from known_bugs.bug import Bug


def all_bugs() -> tuple[Bug, ...]:
    """Return the bugs of every module of this folder that has some."""
    modules = [import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return tuple(bug for module in modules for bug in getattr(module, "BUGS", ()))
