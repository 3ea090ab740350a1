"""Drives the rollout adapter over a stand-in of its pipeline's loop, where it is known and the adapter keeps it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch

from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.rollout import RolloutDriver


class OwnLoopError(NotDrivableError):
    """The package has its own loop, so upstream's pipeline says nothing about its rollout."""


def drive(subject: Any, dtype: torch.dtype | None = None) -> RolloutDriver:
    """A driver of the rollout adapter.

    Args:
        subject: the package.
        dtype: dtype in which the model answers.

    Raises:
        NotDrivableError: the adapter cannot be driven.
    """
    require_inherited_loop(subject)
    return RolloutDriver(subject, dtype)


def require_inherited_loop(subject: Any) -> None:
    """Raise where the package's classes step the scheduler themselves, or never call the inherited ``forward``.

    A spec says how its package's upstream loops.

    Raises:
        NotDrivableError: the loop is the package's own.
    """
    if subject.spec:
        return
    package = f"{subject.name}."
    kinds = [kind for kind in subject.rollout.__mro__ if f"{kind.__module__}.".startswith(package)]
    own = [value for kind in kinds for value in vars(kind).values()]
    codes = [code for value in own if inspect.isfunction(value) for code in _codes(inspect.unwrap(value).__code__)]
    inherits = not any("forward" in vars(kind) for kind in kinds) or any("forward" in code.co_names for code in codes)
    if not inherits or any("step" in code.co_names for code in codes):
        why = (subject.job.get("rolled") or {}).get("unknown", "--level rollout runs it")
        raise OwnLoopError(f"the rollout adapter has a loop of its own; {why}")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
