"""Noise differs between requests, and the rollout leaves the global generators alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from scaffold.attributes import with_attribute
from scaffold.verify.formulas import transition
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.driving import drive
from scaffold.verify.subject.rollout import RolloutDriver

ID = "rollout-noise"
TITLE = "members of a group get noise of their own, not the initial latents, and no global generator stays reseeded"
ROLLED = True
PITFALLS = (16, 17)
# Independent noise correlates by about 1/sqrt(elements); equal noise by 1.
LIMIT = 0.9


def run(subject: Any) -> Measured:
    """Recover the noise of the first step of several requests and compare it, with the initial latents too."""
    seeds: list[str] = []
    states: list[torch.Tensor] = []  # of torch's generator ahead of each seeding
    driver = drive(subject)

    def noted(name: str, module: Any, function: str) -> Any:
        original = getattr(module, function)

        def seeding(*args: Any, **kwargs: Any) -> Any:
            seeds.append(name)
            states.append(torch.get_rng_state())
            return original(*args, **kwargs)

        return with_attribute(module, function, seeding)

    with (
        noted("torch.manual_seed", torch, "manual_seed"),
        noted("random.seed", random, "seed"),
        noted("numpy.random.seed", np.random, "seed"),
    ):
        rolls: list[Any] = []
        restored = True
        for seed in (3, 4, 5):
            before = len(states)
            rolls.append(driver.roll_out(seed=seed, sde_type="dance_sde"))
            restored = restored and (len(states) == before or torch.equal(states[before], torch.get_rng_state()))
    own = seeds.count("torch.manual_seed") - driver.own_seeds
    others = [name for name in seeds if name != "torch.manual_seed"]
    reseeded = others or (["torch.manual_seed"] if own > 0 and not restored else [])
    problems = [f"the rollout adapter calls {reseeded[0]}"] if reseeded else []
    noises, initial = [], []
    for rolled in rolls:
        if rolled.latents is None or len(rolled.latents[0]) < 3:
            raise NotDrivableError("the rollout returns no trajectory without a window; see window-alignment")
        # What the step added beyond its mean is the noise, up to a factor.
        noises.append(_noise(driver, rolled))
        initial.append(rolled.walked[0].flatten().double())
    pairs = [(i, j) for i in range(3) for j in range(i)]
    between = max(abs(_correlation(noises[i], noises[j])) for i, j in pairs)
    repeated = max(abs(_correlation(noise, start)) for noise, start in zip(noises, initial, strict=True))
    if repeated > LIMIT:
        problems.append(f"the first noise repeats the initial latents (correlation {repeated:.2f})")
    return Measured(f"correlation of two requests' noise {between:.2f}", problems, between, LIMIT, "correlation")


def _noise(driver: RolloutDriver, rolled: Any) -> torch.Tensor:
    sample = rolled.latents[0][0]
    sigmas = (rolled.sigmas[0], rolled.sigmas[1], rolled.sigmas[1])
    mean, scale = transition("dance_sde", sample, driver.velocity(sample, sigmas[0]), sigmas, 0.7)
    noise: torch.Tensor = ((rolled.latents[0][1].double() - mean) / scale).flatten()
    return noise


def _correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])


def run_recorded(subject: Any) -> Measured:
    """Correlate what each recorded step added to its mean with that of other steps and samples."""
    module, settings = subject.new_module(), subject.settings()
    names, rows = [], []
    for number, sample in enumerate(subject.recording["samples"][:2], start=1):
        names.append(f"the initial latents of sample {number}")
        rows.append(sample["latents"][0].flatten())
        for step, (_, mean, *_) in enumerate(subject.steps(module, [sample], settings)):
            names.append(f"step {step + 1} of sample {number}")
            rows.append((sample["latents"][step + 1] - mean[0]).flatten())
    correlation = torch.corrcoef(torch.stack(rows).double()).abs().fill_diagonal_(0.0)
    worst = int(correlation.argmax())
    one, other = names[worst // len(names)], names[worst % len(names)]
    value = float(correlation.max())
    return Measured(f"{value:.2f} at most, between {one} and {other}", (), value, LIMIT, "correlation")
