"""What is known of scheduler classes of diffusers, which are not part of the source that is read.

One module a class, named like its module in diffusers, with ``SCHEDULER``. A class of the source that has the same
name is another class: only a dotted path that leads into diffusers is looked up here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class KnownScheduler:
    """What a scheduler does that no source of vllm-omni says.

    Attributes:
        name: the class, as diffusers exports it.
        since, seen_until: releases of diffusers that were read.
        source: file of diffusers that says so.
        direction: whether its noise levels fall or rise over a rollout.
        unit: what ``timesteps`` calls a noise level of 1.
        sign: 1 where ``step`` takes the velocity d x / d sigma, -1 where it takes its negative.
        opposite: arguments of ``step`` under which it takes the other sign.
        arguments: the constructor's parameters, in order, with their defaults.
        parameters: the parameters of ``set_timesteps``, in order.
    """

    name: str
    since: str
    seen_until: str
    source: str
    direction: str
    unit: float
    sign: int
    arguments: Mapping[str, Any]
    parameters: tuple[str, ...]
    opposite: tuple[str, ...] = ()


@cache
def _known() -> dict[str, KnownScheduler]:
    modules = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    return {module.SCHEDULER.name: module.SCHEDULER for module in modules}


def find(path: str) -> KnownScheduler | None:
    """Return what is known of the class at a dotted path; None outside of diffusers."""
    package, _, name = path.rpartition(".")
    return _known().get(name) if package.partition(".")[0] == "diffusers" else None
