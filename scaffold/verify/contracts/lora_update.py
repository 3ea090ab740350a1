"""The adapter's update is LoRA's."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.lora import ALPHA, RANK, adapted, layers
from scaffold.verify.subject.noise_floor import limit_for, noise_floor

ID = "lora-update"
TITLE = "the adapted velocity is that of the weights W + (alpha / r) B A, which is what the rollout makes of them"
PITFALLS = (18,)


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
    return Measured(f"{value:.1e} relative from the merged weights", (), value, limit_for(floor), "relative", floor)
