"""Prompt, noise level and position reach the velocity."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.subject import PROMPTS

ID = "inputs-matter"
TITLE = "prompt, its order, noise level and place of a latent each change the velocity"
PITFALLS = (28,)
# A change that is meant to be seen gives 1e-2 and more; 1e-5 is what rounding could give.
LEAST = 1e-5
LENGTHS = "reference_lengths"


def run(subject: Any) -> Measured:
    """Change one input at a time; each must be seen."""
    module = subject.new_module()
    settings = subject.settings()
    latents, timesteps = subject.trajectory(len(PROMPTS), settings)

    def velocity(prompts: Any = PROMPTS, where: Any = latents, when: Any = timesteps) -> torch.Tensor:
        with torch.no_grad():
            inputs, _ = subject.inputs(module, prompts, settings=settings, trajectory=(where, when))
            found: torch.Tensor = subject.velocity(module, inputs)
            return found

    base = velocity()
    others = [(*prompt[:-1], prompt[-1] + 20) for prompt in PROMPTS]
    rolled = velocity(where=latents.roll(1, dims=2)).roll(-1, dims=1)
    seen = {
        "another last token": relative(velocity(others), base),
        "another noise level": relative(velocity(when=timesteps.roll(-2, dims=1)), base),
        "latents in other places": relative(rolled, base),
    }
    if not subject.needs_embeddings:  # an encoder's states contain their position, and need none in the denoiser
        seen["a reversed prompt"] = relative(velocity([prompt[::-1] for prompt in PROMPTS]), base)
    problems = []
    inputs, _ = subject.inputs(module, settings=settings, trajectory=(latents, timesteps))
    columns = subject.references(latents)
    if LENGTHS in columns:  # not an input of the module: ids beyond a length are cut off, or masked in a batch
        batch = subject.micro_batch(PROMPTS, latents)
        batch[LENGTHS] = columns[LENGTHS] - (torch.arange(len(PROMPTS)) == 0).long()[:, None]
        with torch.no_grad():
            shorter, _ = subject.prepared(module, settings, (latents, timesteps), batch)
            seen["a shorter reference image"] = relative(subject.velocity(module, shorter)[:1], base[:1])
    for column in (name for name in columns if name != LENGTHS):
        name = column.removeprefix("reference_")
        given = getattr(inputs["reference"], name)
        moved = given.roll(1, dims=-1).requires_grad_(given.is_floating_point())
        found = subject.velocity(module, {**inputs, "reference": inputs["reference"]._replace(**{name: moved})})
        seen[f"other {name} of the reference image"] = relative(found.detach(), base)
        if moved.requires_grad and not torch.autograd.grad(found.sum(), moved)[0].any():
            problems.append(f"nothing is learned through the {name} of the reference image")
    problems += [f"{name} changes nothing" for name, value in seen.items() if not value > LEAST]
    return Measured("; ".join(f"{name} {value:.1e}" for name, value in seen.items()), problems)


def run_recorded(subject: Any) -> Measured:
    """Exchange the recorded calls, take those of another step, move the latents; each must be seen."""
    module = subject.new_module()
    settings = subject.settings()
    latents, timesteps = subject.trajectory(len(PROMPTS), settings)
    latents[:, 2] = latents[:, 0]

    def velocity(prompts: Any = PROMPTS, where: Any = latents, step: int = 0) -> torch.Tensor:
        with torch.no_grad():
            inputs, _ = subject.inputs(module, prompts, step=step, settings=settings, trajectory=(where, timesteps))
            found: torch.Tensor = subject.velocity(module, inputs)
            return found

    base = velocity()
    rolled = velocity(where=latents.roll(1, dims=-1)).roll(-1, dims=-1)
    others = velocity([*PROMPTS[1:], PROMPTS[0]])
    seen = {f"the calls of another prompt ({i + 1})": relative(others[i], base[i]) for i in range(len(PROMPTS))}
    seen["the calls of another step"] = relative(velocity(step=2), base)
    seen["latents in other places"] = relative(rolled, base)
    problems = [f"{name}: changes nothing" for name, value in seen.items() if not value > LEAST]
    return Measured("; ".join(f"{name} {value:.1e}" for name, value in seen.items()), problems)
