"""The scenarios: each class in a module of ``scenarios/``, or a module with one alone, measures its checks."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

import scaffold.verify.rollout.scenarios as room

if TYPE_CHECKING:
    from scaffold.verify.rollout.check import Check, Measurement
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest


class Scenario(Protocol):
    """What a class or module of ``scenarios/`` offers.

    ``ORDER`` is its place: what changes weights comes after what does not. ``DTYPE`` names the process that runs it.
    ``measure`` yields a measurement for each of ``CHECKS`` and may raise ``NotApplicable``.
    """

    ORDER: int
    DTYPE: str
    CHECKS: tuple[Check, ...]

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Run it; called inside the environment."""


@cache
def scenarios() -> tuple[Scenario, ...]:
    """Return all scenarios in the order they run."""
    names = [info.name for info in pkgutil.iter_modules(room.__path__)]
    modules = [importlib.import_module(f"{room.__name__}.{name}") for name in names]
    found = [part for module in modules for part in (module, *vars(module).values()) if hasattr(part, "CHECKS")]
    return tuple(sorted(cast("list[Scenario]", found), key=lambda part: (part.DTYPE != "float32", part.ORDER)))


def all_checks() -> tuple[Check, ...]:
    """Return every check of every scenario, in the order they are measured."""
    return tuple(check for scenario in scenarios() for check in scenario.CHECKS)
