"""DiffusionNFT: a rollout without noise, and what training predicts at its latents."""

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
CHECKS = (AGREES, CLEAN, MISTAKE)
ALGORITHM = ALGORITHMS["diffusion_nft"]


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Roll out with the adapters of that algorithm, and predict at each of its steps.

    Raises:
        NotApplicable: the package is not registered for it.
    """
    import torch

    from scaffold.verify.formulas import relative
    from scaffold.verify.rollout.engine_side import recorder

    pair = bench.adapters.of(ALGORITHM.registered)
    if pair is None:
        raise NotApplicable(f"the package is not registered for {ALGORITHM.registered}")
    training, rollout = pair
    sampling = {**replace(bench.recipe, noise_level=0.0).sampling(7), "logprobs": True, "global_steps": 1}
    ids = bench.prompts.chat(bench.texts[0])
    bench.engine.negative = bench.prompts.negative(bench.texts[0])
    with recorder.steps() as taken, _of_class(bench.engine.pipeline, rollout):
        carried = _carried(bench.engine.answer(ids, sampling))
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
