"""Mistakes in the reference integration, one module a group; each module has ``MUTANTS``."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from mutants.mutant import Mutant


def all_mutants() -> list[Mutant]:
    """Return the mutants of every module of this folder that has some."""
    modules = [import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return [mutant for module in modules for mutant in getattr(module, "MUTANTS", ())]
