"""The recomputed step follows the formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.formulas import log_prob, relative, transition
from scaffold.verify.measured import Attempts, Measured
from scaffold.verify.subject.guidance import as_velocity, predicts_clean, without_guidance
from scaffold.verify.subject.stand_in_velocity import KnownVelocity, velocity_of
from scaffold.verify.subject.subject import PROMPTS

ID = "sde-step"
TITLE = "mean, deviation and log-prob of the training step follow the formulas of sde, cps and dance_sde"
PITFALLS = (6, 7)
# Float32 against float64: 1e-6 relative of values of order 1; the clip range of FlowGRPO is 1e-5 at its tightest. Where
# the noise level is close to 0 the formula itself rounds more: there it is so many times that.
LIMIT, ROUNDINGS = 1e-5, 4
KINDS = ("sde", "cps", "dance_sde")


def run(subject: Any) -> Measured:
    """Score given next samples at several steps and noise levels with a known velocity.

    If the upstream loop is unknown, so is the sign of a denoiser with embeddings as input: training negates a velocity
    that points to the image. Either sign is then accepted if it is the same everywhere.
    """
    found = _measured(subject, 1)
    free = subject.needs_embeddings and "unknown" in subject.job["upstream"]
    if free and (found.problems or not (found.value or 0) <= (found.limit or 0)):
        other = _measured(subject, -1)
        if not other.problems and (other.value or 0) <= (other.limit or 0):
            return other
    return found


def _measured(subject: Any, sign: int) -> Measured:
    """As `run`, with the sign that training applies to the module's velocity."""
    worst, where, problems, limit = 0.0, "", [], LIMIT
    conventions = set()
    attempts = Attempts()
    moving = subject.moving(PROMPTS)
    clean = predicts_clean(subject)

    def velocity(sample: Tensor, sigma: float) -> Tensor:
        return as_velocity(sign * velocity_of(sample), sample, sigma, clean)

    for kind in KINDS:
        for noise_level in (0.7, 1.0):
            settings = subject.settings(sde_type=kind, noise_level=noise_level, **without_guidance(subject))
            sigmas = [float(value) for value in subject.scheduler(settings).sigmas]
            for step in (0, 1, len(sigmas) - 2):
                latents, timesteps = _near(subject, settings, kind, sigmas, step, velocity)
                found = attempts.of(
                    kind,
                    subject.log_prob,
                    *(KnownVelocity(subject), PROMPTS, settings),
                    step=step,
                    trajectory=(latents, timesteps),
                )
                if found is None:
                    break
                problems += _shapes(found, len(PROMPTS), latents[:, step])
                step_of = (
                    kind,
                    latents[:, step],
                    velocity(latents[:, step], sigmas[step]),
                    (sigmas[step], sigmas[step + 1], sigmas[1]),
                    noise_level,
                )
                mean, scale = transition(*step_of)
                rounded, _ = transition(*step_of, dtype=torch.float32)
                following, expected = latents[:, step + 1], mean
                if moving is not None:  # the rest is given, and has no part in the log-prob
                    parts = (tensor[moving].view(len(PROMPTS), -1) for tensor in (following, mean, rounded))
                    following, expected, rounded = parts
                    mean = torch.where(moving, mean, latents[:, step].double())
                scored = {norm: log_prob(kind, following, expected, scale, norm) for norm in (False, True)}
                errors = {norm: relative(found[0], value) for norm, value in scored.items()}
                norm = min(errors, key=lambda name: errors[name])
                if kind != "cps" and errors[norm] <= LIMIT:
                    conventions.add(norm)
                difference = max(relative(found[1], mean), errors[norm])
                difference = max(difference, relative(found[3], torch.tensor((sigmas[step] - sigmas[step + 1]) ** 0.5)))
                rounding = relative(log_prob(kind, following, rounded, scale, norm), scored[norm])
                allowed = max(LIMIT, ROUNDINGS * max(rounding, relative(rounded, expected)))
                if difference / allowed > worst / limit or difference != difference:
                    told = f"mean {relative(found[1], mean):.1e}, log-prob {errors[norm]:.1e}"
                    where = f" ({kind}, step {step}, noise level {noise_level}: {told})"
                    worst, limit = difference, allowed
    if len(conventions) > 1:
        problems.append("the Gaussian's normaliser is in some log-probs and not in others")
    kept = "with" if conventions == {True} else "without"
    predicted = "; the module is taken to predict the clean sample" if clean else ""
    line = f"{worst:.1e} from the formulas{where if worst > limit else ''}, {kept} the Gaussian's normaliser{predicted}"
    return Measured(line, [*sorted(set(problems)), *attempts.problems], worst, limit, "relative", 1e-6)


def _near(
    subject: Any, settings: Any, kind: str, sigmas: list[float], step: int, velocity: Callable[[Tensor, float], Tensor]
) -> tuple[Any, Any]:
    """A trajectory whose sample after ``step`` is a likely one, as the rollout's is."""
    latents, timesteps = subject.trajectory(len(PROMPTS), settings)
    sample = latents[:, step]
    levels = (sigmas[step], sigmas[step + 1], sigmas[1])
    mean, scale = transition(kind, sample, velocity(sample, sigmas[step]), levels, settings.algo.noise_level)
    noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(9))
    latents[:, step + 1] = (mean + max(scale, 1e-3) * noise).float()
    return latents, timesteps


def _shapes(found: tuple[Any, ...], batch: int, sample: torch.Tensor) -> list[str]:
    if len(found) != 4:
        return [f"forward_and_sample_previous_step returns {len(found)} values, not 4"]
    problems = []
    for name, value, shape in (("log_prob", found[0], (batch,)), ("prev_sample_mean", found[1], tuple(sample.shape))):
        if tuple(value.shape) != shape:
            problems.append(f"{name} has shape {tuple(value.shape)}, not {shape}")
        if value.dtype != torch.float32:
            problems.append(f"{name} is {str(value.dtype).removeprefix('torch.')}, not float32")
    if found[3].numel() != batch:
        problems.append(f"sqrt_dt has {found[3].numel()} values for {batch} samples")
    return problems
