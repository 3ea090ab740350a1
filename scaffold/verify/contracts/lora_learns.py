"""Every adapter learns."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.measured import Measured
from scaffold.verify.subject.lora import adapted, layers
from scaffold.verify.subject.subject import PROMPTS

ID = "lora-learns"
TITLE = "after one optimiser step on the log-prob every LoRA B is non-zero"
PITFALLS = (10, 18, 19, 34)
LIMIT = 0.0  # an adapter whose B stays zero never acts


def run(subject: Any) -> Measured:
    """One step of AdamW on the log-prob, with gradient checkpointing and in train mode, as the engine does."""
    module = adapted(subject)
    if module._supports_gradient_checkpointing:
        module.enable_gradient_checkpointing()
    subject.train(module)
    free = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not free:
        return Measured("", ["no parameter is trainable after LoRA was added"])
    optimizer = torch.optim.AdamW(free, lr=1e-3)
    log_prob = subject.log_prob(module, PROMPTS, subject.settings(), step=1)[0]
    if not log_prob.requires_grad:
        return Measured("", ["the log-prob has no gradient"])
    log_prob.sum().backward()
    optimizer.step()
    zero = sorted(
        name for name, layer in layers(module).items() if not all(b.weight.any() for b in layer.lora_B.values())
    )
    unused = subject.unused(module, [f"{name}.lora_B.default.weight" for name in zero])
    zero = [name for name in zero if f"{name}.lora_B.default.weight" not in unused]
    left = f"; {len(unused)} lie where no recorded call leads, such as {min(unused)}" if unused else ""
    problems = [f"B of {len(zero)} of {len(layers(module))} modules stays zero: {', '.join(zero[:3])}"] if zero else []
    moved = len(layers(module)) - len(unused) - len(zero)
    return Measured(
        f"B of {moved if zero else f'all {moved}'} modules moved{left}", problems, float(len(zero)), LIMIT, "modules"
    )
