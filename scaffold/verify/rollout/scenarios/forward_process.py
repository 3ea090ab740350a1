"""DiffusionNFT and DPO: a rollout without noise, and what training predicts at its latents and between them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaffold.algorithms import ALGORITHMS
from scaffold.verify.rollout.check import CONTROL, VELOCITY, Check, Measurement, NotApplicable

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 68
DTYPE = "float32"
AGREES = Check(
    "rollout-forward-process-velocity",
    "Without noise, training predicts at the rollout's own latents the velocity that it stepped with",
    VELOCITY,
    "relative",
)
CLEAN = Check(
    "rollout-forward-process-clean",
    "The clean latents are the ones that the last step gives the pipeline to decode",
    0.0,
    "absolute",
)
MISTAKE = Check(
    "rollout-control-forward-process",
    "Deliberate mistakes are seen: the velocity's sign, latents of another step",
    CONTROL,
    "limit per effect",
)
BETWEEN = Check(
    "rollout-forward-process-between",
    "At noise levels between those of a rollout, training predicts the velocity that a finer one steps with",
    VELOCITY,
    "relative",
)
CHECKS = (AGREES, CLEAN, MISTAKE, BETWEEN)
UNSCORED = tuple(found for found in ALGORITHMS.values() if not found.scores_steps)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Roll out with the adapters of such an algorithm, and predict at each of its steps.

    Raises:
        NotApplicable: the package is registered for none.
    """
    import torch

    from scaffold.verify.formulas import relative
    from scaffold.verify.rollout.engine_side import recorder

    found = [(pair, known) for known in UNSCORED if (pair := bench.adapters.of(known.registered)) is not None]
    if not found:
        raise NotApplicable(f"the package is registered for none of {', '.join(known.name for known in UNSCORED)}")
    # The last one predicts anywhere between the steps, and at them as the others do.
    (training, rollout), algorithm = found[-1]
    ids = bench.prompts.chat(bench.texts[0])
    bench.engine.negative = bench.prompts.negative(bench.texts[0])

    def rolled(**asked: Any) -> tuple[list[Any], dict[str, Any]]:
        sampling = {**replace(bench.recipe, noise_level=0.0, **asked).sampling(7), "logprobs": True, "global_steps": 1}
        with recorder.steps() as taken, _of_class(bench.engine.pipeline, rollout):
            return taken, _carried(bench.engine.answer(ids, sampling))

    taken, carried = rolled()
    batch = {name: [value] if isinstance(value, bytes) else value for name, value in carried.items()}
    config, times = bench.training.config(bench.recipe), carried["train_timesteps"][0]

    def predicted(latents: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        module = bench.training.module
        given = training.prepare_model_inputs(
            module, config, latents, time.reshape(1), None, None, None, None, batch, 0
        )
        return training.forward(module, config, *given)  # type: ignore[no-any-return]

    with torch.no_grad():
        made = [predicted(step.sample, time) for step, time in zip(taken, times, strict=True)]
        other = [predicted(taken[at - 1].sample, time) for at, time in enumerate(times)]
    apart = [relative(own, step.velocity) for own, step in zip(made, taken, strict=True)]
    yield Measurement(AGREES.id, max(apart), f"largest difference of {len(apart)} velocities", floor=2**-23)
    clean = float((carried["latents_clean"] - taken[-1].result).abs().max())
    yield Measurement(CLEAN.id, clean, f"latents {tuple(carried['latents_clean'].shape)}")
    effects = [*(relative(-own, step.velocity) for own, step in zip(made, taken, strict=True))]
    effects += [relative(wrong, step.velocity) for wrong, step in zip(other, taken, strict=True)]
    told = f"velocities move by {min(effects):.1e} at least, relative"
    yield Measurement(MISTAKE.id, VELOCITY / max(min(effects), 1e-12), told)
    if algorithm.anywhere:
        finer, more = rolled(num_inference_steps=2 * bench.recipe.num_inference_steps)
        with torch.no_grad():
            off = [
                relative(predicted(step.sample, time), step.velocity)
                for step, time in zip(finer, more["train_timesteps"][0], strict=True)
            ]
        told = f"largest difference of {len(off)} velocities of a rollout of twice the steps"
        yield Measurement(BETWEEN.id, max(off), told, floor=2**-23)


@contextlib.contextmanager
def _of_class(pipeline: Any, kind: type) -> Iterator[None]:
    """Inside the block the pipeline is of an adapter's class, which adds no state to its own."""
    own = type(pipeline)
    pipeline.__class__ = kind
    try:
        yield
    finally:
        pipeline.__class__ = own


def _carried(output: Any) -> dict[str, Any]:
    """What a rollout hands to training beside a trajectory."""
    metadata = output.output.get("metadata") if isinstance(output.output, dict) else None
    return dict((metadata or {}).get("rl") or output.custom_output or {})
