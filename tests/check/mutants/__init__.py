"""Mistakes in the reference integration, one module a group; each module has ``MUTANTS``."""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module

from mutants.mutant import Mutant


@lru_cache(maxsize=1)
def all_mutants() -> tuple[Mutant, ...]:
    """Return the mutants of every module of this folder that has some."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name != "outcome")
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return tuple(mutant for module in modules for mutant in getattr(module, "MUTANTS", ()))
