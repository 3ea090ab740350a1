"""The rollout's log-probs are those that training recomputes."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import difference, log_prob_limit
from scaffold.verify.measured import Attempts, Measured, NotDrivableError
from scaffold.verify.rollout.engine_side import recorder
from scaffold.verify.subject.driving import drive
from scaffold.verify.subject.recorded import MisfitError
from scaffold.verify.subject.stand_in_velocity import KnownVelocity

ID = "rollout-log-probs"
TITLE = "the log-probs that the rollout records are those that training recomputes, for every SDE type"
ROLLED = True
PITFALLS = (5, 6, 7, 13)
# Rollout and training score the same float32 numbers: 6e-8 was measured on the real engine.
LIMIT = 1e-6
KINDS = ("sde", "cps", "dance_sde")


def run(subject: Any) -> Measured:
    """Roll out with a known velocity, score each recorded step with the same velocity."""
    driver, module = drive(subject), KnownVelocity(subject)
    worst, where, problems = 0.0, "", []
    series: dict[str, list[float]] = {}
    attempts = Attempts()
    for kind, noise_level in (*((kind, 0.7) for kind in KINDS), (KINDS[0], 0.4)):
        rolled = attempts.of(kind, driver.roll_out, sde_type=kind, noise_level=noise_level)
        if rolled is None:
            continue
        if rolled.latents is None or rolled.timesteps is None or rolled.log_probs is None:
            raise NotDrivableError("the rollout returns no trajectory without a window; see window-alignment")
        count = rolled.timesteps.shape[1] if rolled.timesteps.ndim > 1 else 0
        if rolled.log_probs.shape != (1, count) or rolled.latents.shape[:2] != (1, count + 1):
            problems.append(
                f"{kind}: log-probs are {tuple(rolled.log_probs.shape)} for timesteps {tuple(rolled.timesteps.shape)}"
                f" and latents {tuple(rolled.latents.shape)}"
            )
            continue
        again = attempts.of(kind, recomputed, subject, module, rolled, kind, noise_level)
        if again is None:
            continue
        apart = difference(again, rolled.log_probs)
        if not series:
            series = {"rollout log-prob": rolled.log_probs[0].tolist(), "training log-prob": again[0].tolist()}
        if apart > worst:
            worst, where = apart, f" ({kind}, noise level {noise_level})"
    problems += attempts.problems
    return Measured(f"{worst:.1e} apart{where}", problems, worst, LIMIT, "absolute", 6e-8, series or None)


def recomputed(subject: Any, module: Any, rolled: Any, kind: str, noise_level: float = 0.7) -> torch.Tensor:
    """Log-probs ``(1, W)`` of a recorded trajectory as the training adapter computes them."""
    settings = subject.settings(sde_type=kind, noise_level=noise_level)
    values = []
    for step in range(rolled.timesteps.shape[1]):
        with torch.no_grad():
            found = subject.log_prob(
                module, [(1, 2, 3)], settings, step=step, trajectory=(rolled.latents, rolled.timesteps)
            )
        values.append(found[0])
    return torch.stack(values, dim=1)


def run_recorded(subject: Any) -> Measured:
    """Recompute a rollout of each SDE type, and one of an edit without images, with the weights that made it."""
    module = subject.new_module()
    worst, where = 0.0, ""
    series: dict[str, list[float]] = {}
    recording = subject.recording
    samples = [*recording["kinds"].items(), *(("sde", sample) for sample in recording["plain"])]
    for number, (kind, sample) in enumerate(samples):
        settings = subject.settings(sde_type=kind, noise_level=subject.recording["noise_level"])
        try:
            with recorder.steps() as taken:
                again = subject.recomputed(module, [sample], settings)[0]
        except MisfitError as reason:
            return Measured("", [str(reason)])
        apart = (again - sample["log_probs"]).abs()
        # What the worst step is apart, as a share of what float32 allows it.
        limits = [log_prob_limit(kind, LIMIT, step, float(settings.algo.noise_level)) for step in taken]
        limits = limits if len(limits) == len(apart) else [LIMIT] * len(apart)
        difference = float((apart / torch.tensor(limits)).max()) * LIMIT
        name = kind if number < len(recording["kinds"]) else f"{kind} without images"
        series |= {f"{name}, rollout": sample["log_probs"].tolist(), f"{name}, training": again.tolist()}
        if difference > worst or difference != difference:
            scaled = f", where float32 allows {max(limits):.1e}" if max(limits) > LIMIT else ""
            worst, where = difference, f" ({name}{scaled})"
    return Measured(f"{worst:.1e} apart{where}", (), worst, LIMIT, "absolute", 6e-8, series)
