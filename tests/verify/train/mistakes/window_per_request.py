"""Every request is told another training step, so that each draws a window of its own."""

from __future__ import annotations

import random
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after


@after("verl_omni.agent_loop.diffusion_agent_loop")
def patch(module: Any) -> None:
    """Change the step in each request's sampling parameters."""
    loop = module.DiffusionAgentLoopWorker
    original = loop._run_agent_loop

    async def run(self: Any, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        changed = {**sampling_params, "global_steps": random.randrange(1_000_000)}
        return await original(self, changed, **kwargs)

    loop._run_agent_loop = run
