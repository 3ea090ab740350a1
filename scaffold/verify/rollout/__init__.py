"""Level ``rollout``: the real vllm-omni runs the package on a CPU, and training recomputes what it did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.verify.request import VerifyRequest
    from scaffold.verify.rollout.level import Outcome


def run(request: VerifyRequest, *, version: str | None = None, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Run the level.

    Args:
        request: package, checkpoint and selection.
        version: of vllm-omni; by default ``$OMNI_SCAFFOLD_ROLLOUT_VERSION``, else the one the package was made for.
        tell: gets a line for each check as the process of its precision ends.

    Raises:
        ScaffoldError: as for :func:`require`.
    """
    from scaffold.verify.rollout.level import run_level

    return run_level(request, version=version, tell=tell)


def require(request: VerifyRequest) -> None:
    """Return at once where the level can run what is selected of it.

    Raises:
        ScaffoldError: it cannot; the message says what to do.
    """
    if not request.select or set(request.select) & set(check_ids()):
        from scaffold.verify.rollout.level import require as plan

        plan(request, Path())


def check_ids() -> list[str]:
    """Return the ids of the level's checks, in the order they are reported."""
    from scaffold.verify.rollout.level import level_checks

    return [check.id for check in level_checks()]
