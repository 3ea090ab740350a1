"""Records real rollouts for level ``contract``: only its own pipeline can make a ported denoiser's inputs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.attributes import with_entries

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.recipe import Recipe
    from scaffold.verify.rollout.engine_side.trajectory import Trajectory

FILE = "recording.pt"
# Three of different lengths, then three of one length, in bytes, which is what the tiny tokenizer counts.
RAGGED = ("a red fox", "portrait of an old sailor, oil on canvas, three bottles behind him", "two cats asleep")
EQUAL = ("four green boats", "four black doors", "a very long road")
COUNTS = (2, 3, 4, 9, 28)
RANKS, TRAINING_STEPS = (0, 1), (1, 2, 3, 5, 8, 100)


def record(bench: EngineUnderTest, folder: Path) -> None:
    """Write ``recording.pt``: plain values and tensors.

    ``samples`` under the default settings, with the velocity of each step, ``guided`` one by scale, ``schedules`` noise
    levels by the number of steps asked for, ``windows`` first noise levels by training step, one a rank, ``size`` what
    a request asks for, ``guidance`` scales that are not the package's own, ``plain`` a sample without the images that
    other requests of an edit bring. In half precision there are only samples, of different lengths.
    """
    import torch

    recipe = bench.recipe
    full, texts = bench.task.dtype == "float32", _texts(bench)
    several = (*texts, *EQUAL) if full and bench.table is None else texts
    content: dict[str, Any] = {
        "samples": [_plain(sample) for sample in bench.roll_out(recipe, several)],
        "size": {"height": recipe.height, "width": recipe.width, "num_frames": recipe.num_frames},
        "steps": recipe.num_inference_steps,
        "noise_level": recipe.noise_level,
        "guidance": recipe.guidance,
    }
    if full:
        kinds = {kind: _plain(_one(bench, replace(recipe, sde_type=kind))) for kind in ("sde", "cps", "dance_sde")}
        content |= {"kinds": kinds, "guided": dict(_guided(bench))}
        with bench.engine.without_media():
            content["plain"] = [_plain(_one(bench, recipe))] if bench.references else []
        content |= {"schedules": dict(_schedules(bench)), "windows": dict(_windows(bench))}
    torch.save(content, folder / FILE)


def _texts(bench: EngineUnderTest) -> Sequence[str]:
    """A hand-written package's prompts are its data script's."""
    return RAGGED if bench.table is None else bench.texts


def _one(bench: EngineUnderTest, recipe: Recipe) -> Trajectory:
    return bench.roll_out(recipe, _texts(bench)[:1])[0]


def _plain(sample: Trajectory) -> dict[str, Any]:
    names = ("token_ids", "latents", "timesteps", "log_probs", "velocities", "extra")
    return {name: getattr(sample, name) for name in names}


def _guided(bench: EngineUnderTest) -> Iterator[tuple[float, dict[str, Any]]]:
    """One sample without guidance, one with less than the package's own, and one with more."""
    scale, neutral = bench.task.facts["guidance"]["scale"], bench.neutral
    for value in () if scale is None else (neutral, neutral + (scale - neutral) / 2, scale + 1.0):
        yield value, _plain(_one(bench, bench.guided(value)))


def _schedules(bench: EngineUnderTest) -> Iterator[tuple[int, list[float]]]:
    for count in COUNTS:
        sample = _one(bench, replace(bench.recipe, num_inference_steps=count))
        yield count, [float(value) for value in sample.timesteps]


def _windows(bench: EngineUnderTest) -> Iterator[tuple[int, list[float]]]:
    """Noise level at which the window of two begins, by training step; each rank sends a request of its own."""
    texts, count = _texts(bench), len(_one(bench, bench.recipe).timesteps)
    recipe = replace(bench.recipe, sde_window_size=2, sde_window_range=(0, count))
    found: dict[int, list[float]] = {}
    for rank in RANKS:
        with with_entries(os.environ, {"LOCAL_RANK": str(rank), "RANK": str(rank)}):
            for step in TRAINING_STEPS:
                sample = bench.roll_out(replace(recipe, global_steps=step), texts[rank : rank + 1], seed=rank)[0]
                found.setdefault(step, []).append(float(sample.timesteps[0]))
    yield from found.items()
