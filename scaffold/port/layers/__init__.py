"""What stands for each layer of the engine's: one module a kind, found by walking.

A module has ``NAMES`` (last names of the classes or functions that it replaces) and
``build(arguments, site) -> Built``, which says what is made in their place; ``BASES`` where classes may derive from
them; ``CLASS``, module and name in `scaffold.port.support`, where a class of the same parameters stands for them.
``Unsupported`` says what has no counterpart.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from scaffold.port.layer import Arguments, Built, Site

ENGINES = ("vllm", "vllm_omni")


class LayerKind(Protocol):
    """What a module of this folder offers."""

    NAMES: tuple[str, ...]

    @staticmethod
    def build(arguments: Arguments, site: Site) -> Built:
        """Return what is made in the layer's place."""


@cache
def kinds() -> dict[str, LayerKind]:
    """Return the kinds by the name of what they replace."""
    found: dict[str, LayerKind] = {}
    for info in pkgutil.iter_modules(__path__):
        module = cast("LayerKind", importlib.import_module(f"{__name__}.{info.name}"))
        found |= dict.fromkeys(getattr(module, "NAMES", ()), module)
    return found


@cache
def bases() -> dict[str, str]:
    """Return what stands for base classes of the engine's."""
    found: dict[str, str] = {}
    for info in pkgutil.iter_modules(__path__):
        found |= dict(getattr(importlib.import_module(f"{__name__}.{info.name}"), "BASES", {}))
    return found


def kind_of(path: str) -> LayerKind | None:
    """Return the kind that replaces what stands at a dotted path."""
    return kinds().get(path.rpartition(".")[2]) if path.partition(".")[0] in ENGINES else None


def class_of(path: str) -> tuple[str, str] | None:
    """Return module and name of our class that has the parameters of the one at a dotted path."""
    found: tuple[str, str] | None = getattr(kind_of(path), "CLASS", None)
    return found
