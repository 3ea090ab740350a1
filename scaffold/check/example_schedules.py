"""A change of the examples' package: the noise levels come from a scheduler that is made only to be asked."""

from __future__ import annotations

ASKED = (
    "    t = torch.linspace(1, 0, max(num_inference_steps, 2), dtype=torch.float32)\n"
    "    return (SCHEDULE_SHIFT * t / (1 + (SCHEDULE_SHIFT - 1) * t))[:-1].tolist()\n",
    "    asked = FlowMatchSDEDiscreteScheduler(shift=SCHEDULE_SHIFT)\n"
    "    t = torch.linspace(1, 1 / num_inference_steps, num_inference_steps)\n"
    "    asked.set_timesteps(sigmas=t.tolist())\n"
    "    return asked.sigmas[:-1].tolist()\n",
)
