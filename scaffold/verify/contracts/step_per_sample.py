"""Samples of a micro-batch may stand at different steps."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from scaffold.verify.contracts.cfg_formula import RENORMS
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Attempts, Measured
from scaffold.verify.subject.guidance import guidance_of
from scaffold.verify.subject.stand_in_velocity import TwoBranches
from scaffold.verify.subject.subject import PROMPTS

ID = "step-per-sample"
TITLE = "samples at different noise levels in one micro-batch are each guided and scored at their own"
# The same float32 operations on fewer rows; the noise level of another sample gives 1e-1.
LIMIT = 1e-5
STEP = 1


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
        f"log-prob and mean differ by {worst:.1e} from those of the sample alone{where if worst > LIMIT else ''}",
        attempts.problems,
        worst,
        LIMIT,
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
