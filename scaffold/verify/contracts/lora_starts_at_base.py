"""A fresh adapter changes nothing."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.lora import adapted

ID = "lora-starts-at-base"
TITLE = "with a fresh LoRA adapter the velocity is that of the base weights"
PITFALLS = (34,)
LIMIT = 1e-5  # B is zero: adding zero rounds nothing, but may move a tensor, whose sums then run in another order


def run(subject: Any) -> Measured:
    """Compare the velocity before and after injection."""
    plain = subject.new_module()
    inputs, _ = subject.inputs(plain)
    module = adapted(subject)
    with torch.no_grad():
        value = relative(subject.velocity(module, inputs), subject.velocity(plain, inputs))
    return Measured(f"velocity moves by {value:g}", (), value, LIMIT, "relative")
