"""Velocities that follow from what a module predicts: the velocity itself, or the clean sample."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from scaffold.verify.formulas import relative, transition
from scaffold.verify.subject.stand_in_velocity import KnownVelocity, velocity_of
from scaffold.verify.subject.subject import PROMPTS

_LIMIT = 1e-5  # as for sde-step


def predicts_clean(subject: Any) -> bool:
    """Whether the adapter takes the module's output for the clean sample, and makes the velocity of it by itself.

    Both branches predict the same, so that guidance does not matter.
    """
    settings = subject.settings(sde_type="sde", noise_level=0.7)
    try:
        sigmas = [float(value) for value in subject.scheduler(settings).sigmas]
        latents, timesteps = subject.trajectory(len(PROMPTS), settings)
        found = subject.log_prob(KnownVelocity(subject), PROMPTS, settings, step=1, trajectory=(latents, timesteps))[1]
        velocity = as_velocity(velocity_of(latents[:, 1]), latents[:, 1], sigmas[1], clean=True)
        mean, _ = transition("sde", latents[:, 1], velocity, (sigmas[1], sigmas[2], sigmas[1]), 0.7)
        return relative(found, mean) <= _LIMIT
    except Exception:
        return False  # what is wrong is found out, and told, by the contracts


def as_velocity(predicted: Tensor, sample: Tensor, sigma: float, clean: bool) -> Tensor:
    """The velocity of a prediction, of the shape of ``sample``; float64 where it is made of a clean sample."""
    return (sample.double() - predicted.double()) / sigma if clean else predicted
