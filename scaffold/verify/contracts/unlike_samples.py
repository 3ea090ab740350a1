"""Samples of one step may differ: each is computed at its own noise level, and all in as many calls."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from scaffold.verify.contracts.cfg_formula import RENORMS
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Attempts, Measured, NotDrivableError
from scaffold.verify.subject.guidance import guidance_of
from scaffold.verify.subject.stand_in_velocity import TwoBranches
from scaffold.verify.subject.subject import PROMPTS

STEP = 1
SEEDS = (0, 1, 2, 3)  # the first number that they draw is 0.50, 0.76, 0.61, 0.004


class StepPerSample:
    """Samples of a micro-batch may stand at different steps."""

    ID = "step-per-sample"
    TITLE = "samples at different noise levels in one micro-batch are each guided and scored at their own"
    # The same float32 operations on fewer rows; the noise level of another sample gives 1e-1.
    LIMIT = 1e-5

    @staticmethod
    def run(subject: Any) -> Measured:
        """Score one batch whose windows begin at different steps, then each sample alone; guidance acts on some only.

        Where rollouts carry their noise levels, samples have unlike ones, too.
        """
        worst, where = 0.0, ""
        attempts = Attempts()
        cases = [(f"with {change or 'no settings'}", change, contextlib.nullcontext()) for change in _cases(subject)]
        if getattr(subject, "carries", False):
            cases.append(("each with a schedule of its own", cases[0][1], subject.own_schedules()))
        for name, change, block in cases:
            with block:
                found = attempts.of(name, _apart, subject, change) or ()
            for number, difference in enumerate(found):
                if difference > worst:
                    worst, where = difference, f" (sample {number + 1} of {len(PROMPTS)}, {name})"
        return Measured(
            f"log-prob and mean differ by {worst:.1e} from those of the sample alone"
            f"{where if worst > StepPerSample.LIMIT else ''}",
            attempts.problems,
            worst,
            StepPerSample.LIMIT,
            "relative",
            1e-7,
        )


def _apart(subject: Any, change: dict[str, Any]) -> list[float]:
    """Return each sample's difference between batch and alone; empty for an unsupported renorm, see cfg-formula."""
    settings = subject.settings(**change)
    try:
        together = _scored(subject, settings, PROMPTS, *subject.unlike(len(PROMPTS), settings))
    except (NotImplementedError, ValueError):
        if not change:
            raise
        return []
    found = []
    for i, prompt in enumerate(PROMPTS):
        alone = _scored(subject, settings, [prompt], *subject.unlike(1, settings, 1 + i))
        pairs = zip(together[:2], alone[:2], strict=True)
        found.append(max(relative(batch[i], single[0]) for batch, single in pairs))
    return found


def _cases(subject: Any) -> list[dict[str, Any]]:
    """Settings of guidance: the recipe's, an interval that ends between samples, each renorm."""
    found = guidance_of(subject)
    if found is None:
        return [{}]
    cases: list[dict[str, Any]] = [{}]
    if "interval" in found.names:
        sigmas = subject.scheduler(subject.settings()).sigmas
        cases.append({"interval": (0.0, float(sigmas[STEP + 1] + sigmas[STEP]) / 2)})
    if "renorm_type" in found.names:
        cases += [{"renorm_type": kind} for kind in RENORMS]
    return [found.settings(**case) for case in cases]


def _scored(subject: Any, settings: Any, prompts: Any, latents: Any, timesteps: Any) -> tuple[Any, ...]:
    """What the training adapter returns for one step over two known branches."""
    trajectory = (latents, timesteps)
    probe = TwoBranches(subject, None)
    inputs = subject.inputs(probe, prompts, settings=settings, step=STEP, trajectory=trajectory)
    with torch.no_grad():
        module = TwoBranches(subject, inputs[1], inputs[0])
        result: tuple[Any, ...] = subject.scored(module, settings, inputs, trajectory, STEP)
    return result


class SameCalls:
    """The same branches run for every sample."""

    ID = "same-calls"
    TITLE = "a step calls the module equally often whatever its samples are: sharded ranks wait for each other"
    PITFALLS = (42,)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Count calls of a step for samples inside and outside of the interval of guidance, and under several seeds."""
        counts: dict[int, str] = {}
        for name, settings, timesteps in _levels(subject):
            for seed in SEEDS:
                torch.manual_seed(seed)
                counts.setdefault(_calls(subject, settings, timesteps), name)
        told = " and ".join(f"{count} calls for {name}" for count, name in counts.items())
        problems = [f"one step makes {told}: ranks with other samples would wait for ever"] if len(counts) > 1 else []
        return Measured(f"{min(counts)} calls a step, inside and outside of the interval of guidance", problems)

    @staticmethod
    def run_recorded(subject: Any) -> Measured:
        """Count the calls of each recorded sample at each step: ranks have different samples."""
        if getattr(subject, "carries", False):
            raise NotDrivableError("training evens the calls of its ranks out: samples may differ in their guidance")
        samples, settings = subject.recording["samples"], subject.settings()
        problems = []
        found: set[int] = set()
        for step in range(samples[0]["timesteps"].shape[0]):
            counts = {_recorded_calls(subject, settings, sample, step) for sample in samples}
            found |= counts
            if len(counts) > 1:
                told = " and ".join(map(str, sorted(counts)))
                problems.append(f"step {step} makes {told} calls for different samples: ranks would wait for ever")
        shown = " or ".join(map(str, sorted(found)))
        return Measured(f"{shown} calls a step, the same for all {len(samples)} samples", problems)


def _levels(subject: Any) -> list[tuple[str, Any, Any]]:
    """Yield a description, settings and noise levels ``(B, T)``; all cases share the settings."""
    found = guidance_of(subject)
    settings = subject.settings()
    levels = subject.scheduler(settings).timesteps.clone()
    if found is not None and "interval" in found.names:
        sigmas = subject.scheduler(settings).sigmas
        middle = float(sigmas[STEP + 1] + sigmas[STEP]) / 2
        settings = subject.settings(**found.settings(interval=(0.0, middle)))
    # At the same step of the trajectory, samples of another window stand at other noise levels.
    high, low = levels.repeat(len(PROMPTS), 1), levels.roll(-1).repeat(len(PROMPTS), 1)
    mixed = torch.stack([*high[:1], *low[1:]])
    return [
        ("samples at a high noise level", settings, high),
        ("samples at a low one", settings, low),
        ("samples of both", settings, mixed),
    ]


def _calls(subject: Any, settings: Any, timesteps: Any) -> int:
    trajectory = subject.latents(len(PROMPTS), timesteps.shape[1] + 1), timesteps
    inputs = subject.inputs(TwoBranches(subject, None), settings=settings, step=STEP, trajectory=trajectory)
    module = TwoBranches(subject, inputs[1], inputs[0])
    subject.scored(module, settings, inputs, trajectory, STEP)
    return len(module.conditional) + len(module.unconditional)


def _recorded_calls(subject: Any, settings: Any, sample: Any, step: int) -> int:
    inputs = subject.inputs_of(None, [sample], step=step)
    module = TwoBranches(subject, inputs[1], inputs[0])
    subject.scored(module, settings, inputs, subject.trajectory_of([sample]), step)
    return len(module.conditional) + len(module.unconditional)
