"""The adapter in PEFT's format, as ``export --adapter`` writes it, in vllm-omni's own adapter manager."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import LOG_PROB, Check, Measurement, NotApplicable
from scaffold.verify.rollout.scenarios.lora import ALPHA, RANK

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

# After the pushes: the manager wraps layers of the engine, and they stay wrapped.
ORDER = 110
DTYPE = "float32"
CHECK = Check(
    "rollout-adapter-file",
    "Where vllm-omni's adapter manager binds an exported adapter, the rollout follows it",
    LOG_PROB,
    "absolute",
)
CHECKS = (CHECK,)
# In what words the manager refuses; any other error is a failure of the rollout.
REFUSALS = ("No supported LoRA modules", "expected target modules", "binding is incomplete")


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Bind the files of an adapter to the engine's own layers, over the checkpoint's weights.

    Raises:
        NotApplicable: there is no adapter, or the manager does not bind it: the merged release is what serves.
    """
    from scaffold.verify.rollout.engine_side import lora

    facts = bench.task.facts["lora"]
    if not facts["targets"]:
        raise NotApplicable("the spec names no LoRA targets")
    training = bench.training.copy()
    lora.inject(training, facts["targets"], RANK, ALPHA)
    lora.change(training, seed=23)
    adapter = lora.collect(training)
    bench.engine.sync(bench.training.base_weights())
    with tempfile.TemporaryDirectory() as folder:
        lora.write(training, folder)
        try:
            with bench.engine.adapter_of(folder):
                samples = bench.roll_out(bench.recipe, bench.texts[:2], lora=True, seed=29)
        except ValueError as error:
            if not any(words in str(error) for words in REFUSALS):
                raise
            raise NotApplicable(f"the manager does not bind it, serve the merged release: {error}") from error
    found = bench.compare(samples, bench.recipe, training=training)
    log_prob, _ = bench.equal((CHECK, CHECK), found)
    yield replace(log_prob, reason=f"{len(adapter.modules)} modules; {log_prob.reason}")
