"""What the pipeline gives its denoiser reaches the velocity."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.contracts.inputs_matter import LEAST
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.subject import PROMPTS


def run(subject: Any) -> Measured:
    """Exchange the recorded calls, take those of another step, move the latents; each must be seen."""
    module = subject.new_module()
    settings = subject.settings()
    latents, timesteps = subject.trajectory(len(PROMPTS), settings)
    latents[:, 2] = latents[:, 0]

    def velocity(prompts: Any = PROMPTS, where: Any = latents, step: int = 0) -> torch.Tensor:
        with torch.no_grad():
            inputs, _ = subject.inputs(module, prompts, step=step, settings=settings, trajectory=(where, timesteps))
            found: torch.Tensor = subject.velocity(module, inputs)
            return found

    base = velocity()
    rolled = velocity(where=latents.roll(1, dims=-1)).roll(-1, dims=-1)
    others = velocity([*PROMPTS[1:], PROMPTS[0]])
    seen = {f"the calls of another prompt ({i + 1})": relative(others[i], base[i]) for i in range(len(PROMPTS))}
    seen["the calls of another step"] = relative(velocity(step=2), base)
    seen["latents in other places"] = relative(rolled, base)
    problems = [f"{name}: changes nothing" for name, value in seen.items() if not value > LEAST]
    return Measured("; ".join(f"{name} {value:.1e}" for name, value in seen.items()), problems)
