"""No activation is checkpointed under no_grad."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from scaffold.verify.measured import Measured

ID = "checkpointing-under-no-grad"
TITLE = "nothing is checkpointed under no_grad"
PITFALLS = (10,)
LIMIT = 0.0  # each call would cost a second forward's bookkeeping and warn


def run(subject: Any) -> Measured:
    """Count calls of the checkpoint function, the package's own way and torch's, under no_grad."""
    module = subject.new_module()
    calls: list[str] = []
    original = torch_checkpoint.checkpoint

    def counting(function: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(getattr(function, "__name__", type(function).__name__))
        kwargs.setdefault("use_reentrant", False)
        return original(function, *args, **kwargs)

    torch_checkpoint.checkpoint = counting
    if module._supports_gradient_checkpointing:
        module.enable_gradient_checkpointing(counting)
    module.train()
    inputs, _ = subject.inputs(module)
    with torch.no_grad():
        subject.velocity(module, inputs)
    return Measured(f"{len(calls)} calls under no_grad", (), float(len(calls)), LIMIT, "calls")
