"""Every prompt of a step gets the seeds of the first one, as they do where seeds come from an index inside a chunk."""

from __future__ import annotations

from typing import Any

from scaffold.verify.train.trainer_side.hooks import after

MEMBERS = 8  # of a group


@after("verl_omni.agent_loop.diffusion_agent_loop_tq")
def patch(module: Any) -> None:
    """Count the members of each group from 0."""
    original = module._derive_rollout_seed
    module._derive_rollout_seed = lambda base, index: original(base, index % MEMBERS)
