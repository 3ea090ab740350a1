"""An adapter is trained, pushed, trained on and pushed again; the rollout follows each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import (
    LOG_PROB,
    Check,
    Measurement,
    NotApplicable,
    control,
    control_measurement,
    equality,
)
from scaffold.verify.rollout.scenarios.together import after_push

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

# The last in float32: what an adapter leaves behind in the engine stays.
ORDER = 100
DTYPE = "float32"
PUSHES = 2
RANK, ALPHA = 8, 16
NO_LAYERS = "the engine's own transformer has no layer that vllm-omni can put LoRA on, so no update reaches a rollout"
PAIR = equality("lora", "After each push of a LoRA adapter", (18,))
STALE = control("stale-lora", "an adapter that was trained and not pushed", (18,))
TOGETHER = Check(
    "rollout-together-lora",
    "Requests of one batch follow a push of LoRA as each does alone",
    LOG_PROB,
    "absolute",
    (18,),
)
CHECKS = (STALE, *PAIR, TOGETHER)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Train on a copy of the module, whose base weights are the checkpoint's."""
    from scaffold.verify.rollout.engine_side import lora
    from scaffold.verify.rollout.engine_side.comparison import join

    facts = bench.task.facts["lora"]
    if not facts["targets"]:
        raise NotApplicable("the spec names no LoRA targets")
    if facts["sync"] == "none":
        raise NotApplicable("this release has no way to bring LoRA into the rollout, and the package refuses it")
    training = bench.training.copy()
    lora.inject(training, facts["targets"], RANK, ALPHA)
    texts = bench.texts[:2]
    parts, told = [], ""
    for push in range(PUSHES):
        lora.change(training, seed=push + 1)
        if push == 0:
            stale = bench.compare(bench.first, bench.recipe, training=training)
            yield control_measurement(STALE, stale.log_prob)
        if facts["sync"] == "merge":
            weights = lora.merged(training)
            bench.engine.sync(weights)
            samples = bench.roll_out(bench.recipe, texts, seed=11 + push)
            parts.append(bench.compare(samples, bench.recipe, training=training))
            told = f"{len(weights)} tensors, merged by the trainer"
            continue
        adapter = lora.collect(training)
        try:
            bench.engine.push_lora(adapter.tensors, adapter.config)
        except ValueError as error:
            if "No supported LoRA modules" not in str(error):
                raise
            raise RuntimeError(
                f"{NO_LAYERS} ({error}): train without LoRA (lora_rank=0), or let the rollout adapter build its"
                " transformer of vllm's linear layers"
            ) from error
        samples = bench.roll_out(bench.recipe, texts, lora=True, seed=11 + push)
        parts.append(bench.compare(samples, bench.recipe, training=training))
        bound = lora.bound(bench.engine.worker, adapter)
        told = f"the engine's manager binds {len(bound)} of {len(adapter.modules)} sent modules"
    hook = hasattr(bench.engine.pipeline, "map_lora_update_to_engine")
    log_prob, velocity = bench.equal(PAIR, join(parts))
    own = hook and facts["sync"] != "merge"
    told = f"{PUSHES} pushes, through the package's own hook" if own else f"{PUSHES} pushes; {told}"
    yield replace(log_prob, reason=f"{told}; {log_prob.reason}")
    yield velocity
    yield after_push(bench, TOGETHER, training, lora=facts["sync"] != "merge")
