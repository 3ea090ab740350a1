"""Adapters can be switched off and on."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.lora import adapted
from scaffold.verify.subject.noise_floor import limit_for, noise_floor

ID = "lora-switch"
TITLE = "disable_adapters gives the base velocity, enable_adapters the adapted one back"
PITFALLS = (11,)


def run(subject: Any) -> Measured:
    """Compare base, adapted, disabled and enabled; the reference policy of the KL term is the disabled one."""
    plain = subject.new_module()
    inputs, _ = subject.inputs(plain)
    module = adapted(subject, zero=False)
    with torch.no_grad():
        base, changed = subject.velocity(plain, inputs), subject.velocity(module, inputs)
        module.disable_adapters()
        disabled = subject.velocity(module, inputs)
        module.enable_adapters()
        enabled = subject.velocity(module, inputs)
    problems = []
    if not relative(changed, base) > 1e-5:
        problems.append("the adapter changes nothing")
    off, on = relative(disabled, base), relative(enabled, changed)
    floor = noise_floor(subject, plain)
    if off > limit_for(floor):
        problems.append(f"disabled, the velocity is {off:.1e} from the base")
    if on > limit_for(floor):
        problems.append(f"enabled again, the velocity is {on:.1e} from before")
    if not any(p.requires_grad for name, p in module.named_parameters() if ".lora_" in name):
        problems.append("after enable_adapters no adapter is trainable")
    return Measured(
        f"disabled {off:.1e}, enabled {on:.1e} relative", problems, max(off, on), limit_for(floor), "relative", floor
    )
