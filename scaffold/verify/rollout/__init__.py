"""Level ``rollout``: the real vllm-omni runs the package on a CPU, and training recomputes what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.verify.request import VerifyRequest
    from scaffold.verify.rollout.level import Outcome


def run(request: VerifyRequest, *, version: str | None = None) -> Outcome:
    """Run the level; where its environment is not built, every check is skipped with the reason.

    Args:
        request: package, checkpoint and selection.
        version: of vllm-omni; by default ``$OMNI_SCAFFOLD_ROLLOUT_VERSION``, else the one the package was made for.
    """
    from scaffold.verify.rollout.level import run_level

    return run_level(request, version=version)


def check_ids() -> list[str]:
    """Return the ids of the level's checks, in the order they are reported."""
    from scaffold.verify.rollout.level import level_checks

    return [check.id for check in level_checks()]
