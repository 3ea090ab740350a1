"""Latents, timesteps and log-probs stay float32 whatever the model computes in."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import log_prob, relative, same, transition
from scaffold.verify.measured import Measured
from scaffold.verify.subject.guidance import as_velocity, predicts_clean, without_guidance
from scaffold.verify.subject.rollout import drive
from scaffold.verify.subject.stand_in_velocity import KnownVelocity, velocity_of
from scaffold.verify.subject.subject import PROMPTS

ID = "float32-kept"
TITLE = "with a bf16 model, latents, timesteps and log-probs are float32 on both sides"
PITFALLS = (13, 33)
# The velocity is rounded to bf16 on both sides alike; what follows is float32, so the limit is float32's.
LIMIT = 1e-5


def run(subject: Any) -> Measured:
    """Run the model in bf16; check the dtypes that the rollout records and that training returns."""
    rolled = drive(subject, dtype=torch.bfloat16).roll_out()
    problems = []
    for name in ("latents", "timesteps", "log_probs"):
        value = getattr(rolled, name)
        if value is not None and value.dtype != torch.float32:
            problems.append(f"the rollout's {name} are {str(value.dtype).removeprefix('torch.')}")
    walked = [value for value in rolled.walked if value.dtype != torch.float32]
    if walked:
        problems.append(f"the sample between two steps is {str(walked[0].dtype).removeprefix('torch.')}")
    rounded = sum(same(value, value.bfloat16().float()) for value in rolled.walked[1:])
    if rounded:
        problems.append(f"{rounded} of {len(rolled.walked) - 1} samples hold bf16 numbers")
    settings = subject.settings(**without_guidance(subject))
    latents, timesteps = subject.trajectory(len(PROMPTS), settings)
    module = KnownVelocity(subject, dtype=torch.bfloat16)
    found = subject.log_prob(module, PROMPTS, settings, step=1, trajectory=(latents, timesteps))
    if found[0].dtype != torch.float32:
        problems.append(f"training's log-prob is {str(found[0].dtype).removeprefix('torch.')}")
    sigmas = [float(value) for value in subject.scheduler(settings).sigmas[:3]]
    predicted = velocity_of(latents[:, 1]).bfloat16()
    velocity = as_velocity(predicted, latents[:, 1], sigmas[1], predicts_clean(subject))
    mean, scale = transition("sde", latents[:, 1], velocity, (sigmas[1], sigmas[2], sigmas[1]), 0.7)
    value = min(relative(found[0], log_prob("sde", latents[:, 2], mean, scale, norm)) for norm in (False, True))
    return Measured(f"all float32, log-prob {value:.1e} from the formula", problems, value, LIMIT, "relative", 1e-6)


def run_recorded(subject: Any) -> Measured:
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
