"""Chooses what the rollout adapter is driven by: upstream's loop, stood in for, or the loop that it has itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch

from scaffold.verify.subject.own_loop import OwnLoop
from scaffold.verify.subject.rollout import RolloutDriver


def drive(subject: Any, dtype: torch.dtype | None = None) -> RolloutDriver:
    """A driver of the rollout adapter.

    Args:
        subject: the package.
        dtype: dtype in which the model answers.

    Raises:
        NotDrivableError: the adapter cannot be driven.
    """
    return (OwnLoop if has_own_loop(subject) else RolloutDriver)(subject, dtype)


def has_own_loop(subject: Any) -> bool:
    """Whether the package's classes define the rollout's ``forward``, and no method of theirs names an inherited one.

    A spec says how its package's upstream loops.
    """
    if subject.spec:
        return False
    package = f"{subject.name}."
    kinds = [kind for kind in subject.rollout.__mro__ if f"{kind.__module__}.".startswith(package)]
    own = [value for kind in kinds for value in vars(kind).values()]
    codes = [code for value in own if inspect.isfunction(value) for code in _codes(inspect.unwrap(value).__code__)]
    return any("forward" in vars(kind) for kind in kinds) and not any("forward" in code.co_names for code in codes)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
