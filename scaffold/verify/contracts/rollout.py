"""A request to the rollout: its log-probs and noise, what it leaves behind, and one for validation."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from scaffold.attributes import with_attribute
from scaffold.verify.formulas import difference, log_prob_limit, relative, same, transition
from scaffold.verify.measured import Attempts, Measured, NotDrivableError
from scaffold.verify.rollout.engine_side import recorder
from scaffold.verify.subject.recorded import MisfitError
from scaffold.verify.subject.rollout import TRAJECTORY, RolloutDriver, drive
from scaffold.verify.subject.stand_in_velocity import KnownVelocity

KINDS = ("sde", "cps", "dance_sde")
BEFORE: dict[str, dict[str, Any]] = {
    "another noise level": {"noise_level": 0.3},
    "another SDE type": {"sde_type": "cps"},
    "more steps and a window": {"steps": 9, "sde_window_size": 2, "sde_window_range": [3, 5]},
    "no log-probs": {"logprobs": False},
}
STEPS = 8


class LogProbs:
    """The rollout's log-probs are those that training recomputes."""

    ID = "rollout-log-probs"
    TITLE = "the log-probs that the rollout records are those that training recomputes, for every SDE type"
    ROLLED = True
    PITFALLS = (5, 6, 7, 13)
    # Rollout and training score the same float32 numbers: 6e-8 was measured on the real engine.
    LIMIT = 1e-6

    @staticmethod
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
                    f"{kind}: log-probs are {tuple(rolled.log_probs.shape)} for timesteps "
                    f"{tuple(rolled.timesteps.shape)} and latents {tuple(rolled.latents.shape)}"
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
        return Measured(f"{worst:.1e} apart{where}", problems, worst, LogProbs.LIMIT, "absolute", 6e-8, series or None)

    @staticmethod
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
            limits = [log_prob_limit(kind, LogProbs.LIMIT, step, float(settings.algo.noise_level)) for step in taken]
            limits = limits if len(limits) == len(apart) else [LogProbs.LIMIT] * len(apart)
            difference = float((apart / torch.tensor(limits)).max()) * LogProbs.LIMIT
            name = kind if number < len(recording["kinds"]) else f"{kind} without images"
            series |= {f"{name}, rollout": sample["log_probs"].tolist(), f"{name}, training": again.tolist()}
            if difference > worst or difference != difference:
                scaled = f", where float32 allows {max(limits):.1e}" if max(limits) > LogProbs.LIMIT else ""
                worst, where = difference, f" ({name}{scaled})"
        return Measured(f"{worst:.1e} apart{where}", (), worst, LogProbs.LIMIT, "absolute", 6e-8, series)


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


class RequestsApart:
    """A request leaves no state for the next one."""

    ID = "requests-apart"
    TITLE = "a request is sampled and recorded as it asks, whatever the requests before it asked for"
    NOT_RECORDED = "the pipeline's own constructor and loop are needed: level rollout sends several requests"
    PITFALLS = (7,)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Send one request to a pipeline that has served others; its result must equal a fresh pipeline's."""
        module = KnownVelocity(subject)
        alone = drive(subject).roll_out()
        worst, tried, limit = 0.0, [], LogProbs.LIMIT
        problems: list[str] = []
        for name, asked in BEFORE.items():
            driver = drive(subject)
            try:
                driver.roll_out(**asked)
            except (NotImplementedError, ValueError):
                continue  # refused, so it leaves no state
            tried.append(name)
            after = driver.roll_out()
            shapes = [[getattr(getattr(one, part), "shape", None) for part in TRAJECTORY] for one in (alone, after)]
            if shapes[0] != shapes[1] or alone.extra_args != after.extra_args:
                problems.append(f"a request after one with {name} is recorded or asks upstream for something else")
            elif not _equal(after.timesteps, alone.timesteps):
                problems.append(f"a request after one with {name} has other timesteps")
            elif after.log_probs is not None:
                found = difference(recomputed(subject, module, after, "sde"), after.log_probs)
                if found > worst:
                    worst = found
                    problems += [f"log-probs after a request with {name} are {found:.1e} off"] if found > limit else []
        return Measured(f"requests after {', '.join(tried)}: {worst:.1e} off", problems, worst, limit, "absolute", 6e-8)


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is other if one is None or other is None else same(one, other)


class Noise:
    """Noise differs between requests, and the rollout leaves the global generators alone."""

    ID = "rollout-noise"
    TITLE = "members of a group get noise of their own, not the initial latents, and no global generator stays reseeded"
    ROLLED = True
    PITFALLS = (16, 17)
    # Independent noise correlates by about 1/sqrt(elements); equal noise by 1.
    LIMIT = 0.9

    @staticmethod
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
        if repeated > Noise.LIMIT:
            problems.append(f"the first noise repeats the initial latents (correlation {repeated:.2f})")
        return Measured(
            f"correlation of two requests' noise {between:.2f}", problems, between, Noise.LIMIT, "correlation"
        )

    @staticmethod
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
        return Measured(f"{value:.2f} at most, between {one} and {other}", (), value, Noise.LIMIT, "correlation")


def _noise(driver: RolloutDriver, rolled: Any) -> torch.Tensor:
    sample = rolled.latents[0][0]
    sigmas = (rolled.sigmas[0], rolled.sigmas[1], rolled.sigmas[1])
    mean, scale = transition("dance_sde", sample, driver.velocity(sample, sigmas[0]), sigmas, 0.7)
    noise: torch.Tensor = ((rolled.latents[0][1].double() - mean) / scale).flatten()
    return noise


def _correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])


class Validation:
    """Validation is the plain integration and sends no trajectory."""

    ID = "validation-output"
    TITLE = (
        "a validation request, at noise level 0 and without a training step, gets the plain integration, no trajectory"
    )
    NOT_RECORDED = "the loop is the pipeline's own: see rollout-validation and -plain of level rollout"
    LIMIT = 1e-5  # relative; a step with noise gives 1e-1

    @staticmethod
    def run(subject: Any) -> Measured:
        """Send what the agent loop sends for validation, with the settings of the window left in it."""
        driver = drive(subject)
        window: dict[str, Any] = {"sde_window_size": 2, "sde_window_range": [0, STEPS // 2]}
        rolled = driver.roll_out(steps=STEPS, noise_level=0.0, logprobs=False, global_steps=None, **window)
        levels = [*rolled.sigmas, 0.0]
        expected = rolled.walked[0].double()
        for now, following in pairwise(levels):
            expected = expected + (following - now) * driver.velocity(expected, now)
        value = relative(rolled.walked[-1].double(), expected)
        kept = {name: getattr(rolled, name) for name in TRAJECTORY}
        size = sum(tensor.nbytes for tensor in kept.values() if isinstance(tensor, torch.Tensor))
        names = ", ".join(name for name, tensor in kept.items() if tensor is not None)
        problems = [f"returns {names}, {size} bytes at this size, which nobody reads in validation"] if names else []
        return Measured(
            f"the last latents are {value:.1e} from the plain integration",
            problems,
            value,
            Validation.LIMIT,
            "relative",
        )
