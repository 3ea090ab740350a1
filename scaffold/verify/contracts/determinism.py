"""The same inputs give the same velocity."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import difference, same
from scaffold.verify.measured import Measured

ID = "determinism"
TITLE = "the same inputs give the same velocity, whatever the state of the random generators"
LIMIT = 0.0  # the same operations in the same order on one thread; log-prob ratios start at exactly 1


def run(subject: Any) -> Measured:
    """Compare two calls under different seeds, in eval mode."""
    module = subject.new_module()
    inputs, _ = subject.inputs(module)
    before = {name: value.clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    with torch.no_grad():
        torch.manual_seed(1)
        first = subject.velocity(module, inputs)
        torch.manual_seed(2)
        second = subject.velocity(module, inputs)
    value = difference(first, second)
    changed = [name for name, tensor in before.items() if not same(tensor, inputs[name])]
    problems = [f"forward changes its argument {name} in place" for name in changed]
    return Measured(f"two calls differ by {value:g}", problems, value, LIMIT, "absolute")
