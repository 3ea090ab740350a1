"""What the user asked ``verify`` to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.verify.result import Level


@dataclass(frozen=True)
class VerifyRequest:
    """One run.

    Attributes:
        package: resolved folder of the package, ``…/verl_omni/pipelines/foo_flow_grpo``.
        checkpoint: folder of a checkpoint whose configuration is used, or None for the package's own defaults.
        level: ``rollout`` runs the contract level too.
        select: ids of the contracts to run; empty for all.
    """

    package: Path
    checkpoint: Path | None = None
    level: Level = "contract"
    select: tuple[str, ...] = ()
