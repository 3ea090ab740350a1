"""Latents, timesteps and log-probs are float32."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.measured import Measured


def run(subject: Any) -> Measured:
    """What the rollout recorded, and what training makes of it with a bf16 module."""
    problems = []
    for name in ("latents", "timesteps", "log_probs"):
        found = subject.recording["samples"][0][name]
        if found.dtype != torch.float32:
            problems.append(f"the rollout records {name} in {str(found.dtype).removeprefix('torch.')}")
        elif torch.equal(found, found.bfloat16().float()):
            problems.append(f"the rollout's {name} are bf16 numbers")
    module = subject.new_module().to(torch.bfloat16)
    samples = subject.recording["samples"][:2]
    steps = subject.steps(module, samples, subject.settings())
    found = torch.stack([step[0].float() for step in steps], dim=1)
    if torch.equal(found, found.bfloat16().float()):
        problems.append("training's log-probs are bf16 numbers")
    mean = steps[1][1]
    if mean.dtype != torch.float32 or torch.equal(mean, mean.bfloat16().float()):
        problems.append("training's mean of the next latents is in bf16")
    return Measured("float32 in the rollout, and in training under a bf16 module", problems)
