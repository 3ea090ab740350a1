"""Why FlowGRPO's log-prob of a step may not apply: one module a reason, found by walking this folder.

A reason is a module with ``refusal(program)``, which returns a ``Refusal`` or None, and may have ``ORDER``.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from scaffold.inspect.program import Program
from scaffold.inspect.refusals.refusal import Refusal


@cache
def reasons() -> tuple[ModuleType, ...]:
    """All modules that know a reason, by ``ORDER`` and name."""
    names = [m.name for m in pkgutil.iter_modules(__path__)]
    loaded = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(sorted((m for m in loaded if hasattr(m, "ORDER")), key=lambda m: (m.ORDER, m.__name__)))


def find_refusal(program: Program) -> Refusal | None:
    """The first reason that applies to the pipeline."""
    return next((r for m in reasons() if (r := m.refusal(program)) is not None), None)
