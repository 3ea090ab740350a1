"""The adapter's update is LoRA's."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from scaffold.attributes import with_attribute
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.rollout.engine_side.sources import pipelines_above
from scaffold.verify.subject.checkpoint import checkpoint_writer
from scaffold.verify.subject.driving import drive
from scaffold.verify.subject.lora import ALPHA, RANK, adapted, layers
from scaffold.verify.subject.noise_floor import limit_for, noise_floor

ID = "lora-update"
TITLE = "the adapted velocity is that of the weights W + (alpha / r) B A, which is what the rollout makes of them"
PITFALLS = (18,)
HOOK = "map_lora_update_to_engine"


def run(subject: Any) -> Measured:
    """Put the sum into a module without adapters and compare: the rollout scales by alpha / r."""
    module, merged = adapted(subject, zero=False), subject.new_module()
    inputs, _ = subject.inputs(merged)
    floor = noise_floor(subject, merged)
    with torch.no_grad():
        for name, layer in layers(module).items():
            down, up = (next(iter(part.values())).weight.double() for part in (layer.lora_A, layer.lora_B))
            weight = merged.get_submodule(name).weight
            weight.copy_(weight.double() + ALPHA / RANK * up @ down)
        value = relative(subject.velocity(module, inputs), subject.velocity(merged, inputs))
    problems = _lost_by_hook(subject, module)
    return Measured(
        f"{value:.1e} relative from the merged weights", problems, value, limit_for(floor), "relative", floor
    )


def _lost_by_hook(subject: Any, module: Any) -> list[str]:
    """Return what the rollout adapter's hook loses of an update, if it has one and can be called here.

    A hook that needs more of the engine than the stand-in has is left to level rollout.
    """
    captured: list[str] = []

    def load_weights(pipeline: Any, weights: Any) -> set[str]:
        names = {name for name, _ in weights}
        captured.extend(names)
        return names

    try:
        if not hasattr(subject.rollout, HOOK):
            return []
        pipeline = drive(subject).pipeline
        upstream = pipelines_above(subject.rollout)[0]
        pipeline.add_module("omni_scaffold_spare", torch.nn.Linear(5, 7))  # a parameter, whose device hooks ask for
        # A rendered hook leaves the manager an adapter of zeros on a layer of the engine's, of which there is none.
        pipeline._placeholder_adapter = lambda config, rank: ({"spare.lora_B.weight": torch.zeros(1)}, config)
        tensors = {
            f"transformer.{name}.lora_{side}.weight": next(iter(part.values())).weight.detach().clone()
            for name, layer in layers(module).items()
            for side, part in (("A", layer.lora_A), ("B", layer.lora_B))
        }
        with tempfile.TemporaryDirectory() as name, with_attribute(upstream, "load_weights", load_weights):
            writer = checkpoint_writer(subject, Path(name, "trial"))
            writer.write(Path(name, "model"), subject.new_module().state_dict())
            pipeline.od_config.model = str(Path(name, "model"))
            targets = subject.declared("target_modules")
            left, _ = getattr(pipeline, HOOK)(tensors, {"r": RANK, "lora_alpha": ALPHA, "target_modules": targets})
    except Exception:
        return []
    if captured or any(bool(tensor.any()) for tensor in left.values()):
        return []
    return [f"{HOOK} loses the update: it loads no weight, and leaves nothing but zeros for the engine's LoRA manager"]
