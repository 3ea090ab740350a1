"""Samples of a micro-batch may stand at different steps."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.guidance import guidance
from scaffold.verify.subject.stand_in_velocity import TwoBranches
from scaffold.verify.subject.subject import PROMPTS

ID = "step-per-sample"
TITLE = "samples at different noise levels in one micro-batch are each guided and scored at their own"
# The same float32 operations on fewer rows; the noise level of another sample gives 1e-1.
LIMIT = 1e-5
STEP = 1


def run(subject: Any) -> Measured:
    """Score one batch whose windows begin at different steps, then each sample alone; guidance acts on some only."""
    changes: list[dict[str, Any]] = [{}]
    sigmas = subject.scheduler(subject.settings()).sigmas
    try:
        found = guidance(subject)
    except NotDrivableError:
        found = None
    if found is not None and "interval" in found.names:
        # Between the noise levels of the first sample and of the last.
        changes.append(found.settings(interval=(0.0, float(sigmas[STEP + 1] + sigmas[STEP]) / 2)))
    worst, where = 0.0, ""
    for change in changes:
        settings = subject.settings(**change)
        latents, timesteps = subject.trajectory(len(PROMPTS), settings)
        timesteps = torch.stack([row.roll(-i) for i, row in enumerate(timesteps)])
        together = _scored(subject, settings, PROMPTS, latents, timesteps)
        for i, prompt in enumerate(PROMPTS):
            alone = _scored(subject, settings, [prompt], latents[i : i + 1], timesteps[i : i + 1])
            for batch, single in zip(together[:2], alone[:2], strict=True):
                difference = relative(batch[i], single[0])
                if difference > worst:
                    worst, where = difference, f" (sample {i + 1} of {len(PROMPTS)}, with {change or 'no settings'})"
    return Measured(
        f"log-prob and mean differ by {worst:.1e} from those of the sample alone{where if worst > LIMIT else ''}",
        (),
        worst,
        LIMIT,
        "relative",
        1e-7,
    )


def _scored(subject: Any, settings: Any, prompts: Any, latents: Any, timesteps: Any) -> tuple[Any, ...]:
    """What the training adapter returns for one step over two known branches."""
    trajectory = (latents, timesteps)
    probe = TwoBranches(subject, None)
    inputs, negative = subject.inputs(probe, prompts, settings=settings, step=STEP, trajectory=trajectory)
    recorded = {"all_latents": latents, "all_timesteps": timesteps}
    with torch.no_grad():
        result: tuple[Any, ...] = subject.training.forward_and_sample_previous_step(
            TwoBranches(subject, negative), subject.scheduler(settings), settings, inputs, negative, recorded, STEP
        )
    return result
