"""Requests of one batch get what each gets alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.check import LOG_PROB, VELOCITY, Check, Measurement, NotApplicable

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 75
DTYPE = "float32"
ROWS = Check(
    "rollout-together-rows",
    "Requests of one batch, of other prompts, lengths, guidance, windows and seeds: training's log-probs are the"
    " rollout's",
    LOG_PROB,
    "absolute",
)
LATENTS = Check(
    "rollout-together-latents",
    "Requests of one batch walk the way that each walks alone",
    VELOCITY,
    "relative",
)
PICTURES = Check(
    "rollout-together-picture",
    "Requests of one batch get the picture that each gets alone, of its own seed",
    1.0,
    "of 255",
)
ALONE = Check(
    "rollout-together-failure",
    "A request of a batch that fails says so, and the others get what they would have got",
    0,
    "requests",
)
CHECKS = (ROWS, LATENTS, PICTURES, ALONE)


ONE_BY_ONE = "the rollout adapter takes one request at a time"


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Run each of some requests alone, then all of them, then all with one among them that must fail."""
    if not bench.engine.batches:
        raise NotApplicable(ONE_BY_ONE)
    asked = list(_asked(bench))
    found = _Compared(bench, asked)
    reason = found.one_by_one or f"{len(asked)} requests"
    yield Measurement(ROWS.id, None if found.one_by_one else found.log_prob, reason, floor=2**-23)
    yield Measurement(LATENTS.id, found.latents, reason, floor=2**-23)
    yield Measurement(PICTURES.id, found.picture, reason, floor=0.0)

    good = _requests(bench, asked)
    ids, sampling = _requests(bench, asked)[1]
    steps = bench.recipe.num_inference_steps
    bad = ids, {**sampling, "sde_window_size": 2, "sde_window_range": [steps + 7, steps + 9]}
    outputs = bench.engine.together([good[0], bad, *good[1:]])
    told = getattr(outputs[1], "error", None)
    others = [outputs[0], *outputs[2:]]
    wrong = sum(
        bool(getattr(other, "error", None)) or _apart(_picture(one), _picture(other)) > 1.0
        for one, other in zip(found.alone, others, strict=True)
    )
    yield Measurement(ALONE.id, float(wrong + (not told)), f"the engine is told: {told}", floor=0.0)


def after_push(bench: EngineUnderTest, check: Check, training: Any, lora: bool = False) -> Measurement:
    """Requests of a batch against training, with the weights that both have now."""
    if not bench.engine.batches:
        return Measurement(check.id, None, ONE_BY_ONE, skipped=True)
    asked = [(text, bench.recipe, 7 + index) for index, text in enumerate(bench.texts[:2])]
    found = _Compared(bench, asked, lora, training)
    return Measurement(check.id, found.log_prob, found.one_by_one or f"{len(asked)} requests", floor=2**-23)


class _Compared:
    """Requests alone and in one batch: the largest difference of each kind."""

    def __init__(
        self, bench: EngineUnderTest, asked: Sequence[tuple[str, Any, int]], lora: bool = False, training: Any = None
    ) -> None:
        from scaffold.verify.rollout.engine_side.trajectory import read_trajectory

        self.alone = [bench.engine.answer(*request, lora) for request in _requests(bench, asked)]
        together = bench.engine.together(_requests(bench, asked), lora)
        told = getattr(bench.engine.pipeline, "one_by_one", "")
        self.one_by_one = f"the adapter makes requests of a batch one by one: {told}" if told else ""
        self.log_prob = self.latents = self.picture = 0.0
        for (text, recipe, _), one, other in zip(asked, self.alone, together, strict=True):
            self.picture = max(self.picture, _apart(_picture(one), _picture(other)))
            if recipe.noise_level > 0.0:
                first, second = (read_trajectory(output, bench.prompts.native(text)) for output in (one, other))
                second.velocities = [None] * second.steps  # nobody watches the steps of a batch
                # Not the log-probs alone: each is that of its own noise, whatever the velocity.
                compared = bench.compare([second], recipe, training=training)
                self.log_prob = max(self.log_prob, compared.log_prob)
                off = (first.latents - second.latents).norm() / first.latents.norm()
                self.latents = max(self.latents, float(off))


def _requests(bench: EngineUnderTest, asked: Sequence[tuple[str, Any, int]]) -> list[tuple[list[int], dict[str, Any]]]:
    """Ids and settings, each with a generator of the steps' noise, which some pipelines draw from the process's own."""
    import torch

    return [
        (
            bench.prompts.chat(text),
            {**recipe.sampling(seed), "generator": torch.Generator().manual_seed(seed + 1)},
        )
        for text, recipe, seed in asked
    ]


def _asked(bench: EngineUnderTest) -> Iterator[tuple[str, Any, int]]:
    """Text, recipe and seed of each request."""
    recipe, texts = bench.recipe, bench.texts
    yield texts[0], recipe, 7
    yield texts[0], recipe, 8
    yield texts[-1], recipe, 7
    yield texts[1 % len(texts)], replace(recipe, sde_window_size=2, sde_window_range=(0, 2)), 9
    yield texts[0], replace(recipe, num_inference_steps=recipe.num_inference_steps + 2), 10
    yield texts[-1], replace(recipe, noise_level=0.0), 11
    try:
        yield texts[0], bench.unguided, 12
    except NotApplicable:
        return


def _picture(output: Any) -> Any:
    """The media of an output as float32 in 0 to 255, or in the output's own unit where it is a tensor."""
    import numpy as np
    import torch
    from PIL import Image

    found: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, Image.Image):
            found.append(torch.from_numpy(np.asarray(value).astype("float32")))
        elif isinstance(value, torch.Tensor):
            found.append(value.float().cpu())
        elif isinstance(value, dict):
            for name in sorted(value):
                if name != "metadata":
                    walk(value[name])
        elif isinstance(value, list | tuple):
            for entry in value:
                walk(entry)

    walk(output.output)
    return found


def _apart(one: Any, other: Any) -> float:
    """The largest difference of two pictures; infinite where there is none, or of another size."""
    shapes = [[part.shape for part in side] for side in (one, other)]
    if not one or shapes[0] != shapes[1]:
        return float("inf")
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))
