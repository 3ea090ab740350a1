"""The formulas of the papers in float64, independent of every package, the kit and upstream.

Sources: Flow-GRPO (arXiv:2505.05470) for ``sde``, DanceGRPO (arXiv:2505.07818) for ``dance_sde``,
coefficients-preserving sampling (arXiv:2509.05952) for ``cps``. x is the sample,
v the velocity, s and s2 the current and next noise level.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def transition(
    kind: str,
    x: Tensor,
    v: Tensor,
    sigmas: tuple[float, float, float],
    noise_level: float,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, float]:
    """Mean of the next sample and the scale of its noise.

    Args:
        kind: ``sde``, ``cps`` or ``dance_sde``.
        x: the sample, any shape.
        v: the velocity, shaped like it.
        sigmas: noise level now and next, and the schedule's second point, which stands in for 1 - 1 = 0.
        noise_level: eta.
        dtype: in which it is computed; float32 shows how much of a difference is rounding.
    """
    x, v = x.to(dtype), v.to(dtype)
    now, following, second = sigmas
    dt = following - now
    clean = x - now * v
    if kind == "cps":
        scale = following * math.sin(noise_level * math.pi / 2)
        noise = x + (1 - now) * v
        return clean * (1 - following) + noise * math.sqrt(following**2 - scale**2), scale
    if kind == "dance_sde":
        pull = (x - clean * (1 - now)) / now**2
        return x + dt * v + 0.5 * noise_level**2 * pull * dt, noise_level * math.sqrt(-dt)
    deviation = noise_level * math.sqrt(now / (1 - (second if now == 1 else now)))
    drift = deviation**2 / (2 * now)
    return x * (1 + drift * dt) + v * (1 + drift * (1 - now)) * dt, deviation * math.sqrt(-dt)


def log_prob(kind: str, following: Tensor, mean: Tensor, scale: float, normalizer: bool) -> Tensor:
    """Mean log-probability of each sample, ``(B,)`` float64."""
    squared = (following.double() - mean.double()) ** 2
    values = -squared if kind == "cps" else -squared / (2 * scale**2)
    if normalizer and kind != "cps":
        values = values - math.log(scale) - 0.5 * math.log(2 * math.pi)
    return values.flatten(1).mean(dim=1)


# VeRL-Omni's dance_sde divides a difference by the square of the noise level: at the last level of a schedule that
# ends low, float32 itself leaves less of a log-prob than elsewhere.
ROUNDED = "dance_sde"
SIDES = 3.0  # two sides round, each by itself


def log_prob_limit(kind: str, least: float, step: Any, noise_level: float) -> float:
    """How far two log-probs of one step may lie apart, in nats, where both sides compute in float32.

    Args:
        kind: of the step.
        least: the limit of every other kind.
        step: that was scored, with ``sample``, ``velocity``, ``given``, ``sigma`` and ``following``.
        noise_level: eta.
    """
    if kind != ROUNDED or step.given is None:
        return least
    both = []
    for dtype in (torch.float32, torch.float64):
        levels = (step.sigma, step.following, step.sigma)
        mean, scale = transition(kind, step.sample, step.velocity, levels, noise_level, dtype)
        both.append(log_prob(kind, step.given, mean, scale, normalizer=False))
    return max(least, SIDES * float((both[0] - both[1]).abs().max()))


def guided(
    c: Tensor, u: Tensor, sigma: float, values: dict[str, Any], epsilon: float, image_free: Tensor | None = None
) -> Tensor:
    """Guidance with text and image scale, interval and renorm.

    Args:
        c: velocity with the prompt, ``(B, N, C)``.
        u: velocity without it.
        sigma: noise level of the step.
        values: ``text_scale``, ``image_scale``, ``interval``, ``renorm_type``, ``renorm_min``; ``interval_rule`` and
            ``time`` where they are not ``lo < sigma <= hi`` and ``sigma``.
        epsilon: added to the norm that is divided by.
        image_free: velocity with the prompt and without the image that a request brings; None where it brings none.
    """
    c, u = c.double(), u.double()
    low, high = values["interval"]
    level = time_of(sigma, values)
    above = low <= level if values.get("interval_rule") == "lo <= sigma <= hi" else low < level
    if values["text_scale"] <= 1.0 or not (above and level <= high):
        return c
    result: Tensor = u + values["text_scale"] * (c - u)
    kind, minimum = values["renorm_type"], values["renorm_min"]
    if kind == "text_channel":
        result = _renormed(result, c, (-1,), minimum, epsilon)
    if values["image_scale"] > 1.0:
        # In text-to-image the branch without the input image is the conditional one.
        start = c if image_free is None else image_free.double()
        result = start + values["image_scale"] * (result - start)
    if kind in ("global", "channel"):
        result = _renormed(result, c, (1, 2) if kind == "global" else (-1,), minimum, epsilon)
    return result


def time_of(sigma: float, values: dict[str, Any]) -> float:
    """Return the value compared with the interval: sigma, or 1 - sigma in float32 if time runs from noise to image."""
    return float(1 - torch.tensor(sigma, dtype=torch.float32)) if values.get("time") == "1 - sigma" else sigma


def _renormed(result: Tensor, reference: Tensor, dims: tuple[int, ...], minimum: float, epsilon: float) -> Tensor:
    wanted = torch.linalg.vector_norm(reference, dim=dims, keepdim=True)
    norm = torch.linalg.vector_norm(result, dim=dims, keepdim=True)
    scaled: Tensor = result * (wanted / (norm + epsilon)).clamp(min=minimum, max=1.0)
    return scaled


def shifted_sigmas(points: int, shift: float) -> list[float]:
    """``points`` noise levels from 1 to 0 under the time shift ``s t / (1 + (s - 1) t)``."""
    times = [1 - i / (points - 1) for i in range(points)]
    return [shift * t / (1 + (shift - 1) * t) for t in times]


def truncated_sigmas(points: int, shift: float, parts: int, start: float) -> list[float]:
    """Noise levels on a grid from a level that is shifted once before, each truncated to whole parts; the last is 0.

    A first level below 1 is replaced by 1, pure noise, whatever timestep the model gets.
    """
    if points < 2:
        return []

    def shifted(t: float) -> float:
        return shift * t / (1 + (shift - 1) * t)

    # The grid's start is a float32 number upstream.
    first = float(torch.tensor(shifted(start), dtype=torch.float64).float())
    levels = [int(shifted(first * (1 - i / (points - 1))) * parts) / parts for i in range(points - 1)]
    return [1.0, *levels[1:], 0.0]


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest difference; infinite where one of the two is not a number, which ``max`` would lose."""
    value: float = (found.double() - expected.double()).abs().max().item()
    return value if value == value else math.inf


def same(found: Tensor, expected: Tensor) -> bool:
    """Whether two tensors have one shape and the same values."""
    return torch.equal(found, expected)


def worst_relative(found: Tensor, expected: Tensor) -> float:
    """Return the largest ``relative`` over the samples, so that a sample with large values does not hide another."""
    return max(relative(one, other) for one, other in zip(found, expected, strict=True))


def relative(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest expected magnitude; infinite where something is not a number."""
    scale: float = expected.double().abs().max().item()
    value = difference(found, expected) / max(scale, 1e-12)
    return value if value == value else math.inf
