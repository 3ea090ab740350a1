"""Training mode computes what the rollout computes."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import difference
from scaffold.verify.measured import Measured

ID = "train-mode"
TITLE = "in train mode the velocity is that of eval mode, and gradients flow"
PITFALLS = (12,)
LIMIT = 0.0  # the rollout has no train mode: any difference biases the first log-prob ratio


def run(subject: Any) -> Measured:
    """Compare eval mode with ``train()`` followed by ``configure_train_mode``, under two seeds for dropout."""
    module = subject.new_module()
    inputs, _ = subject.inputs(module)
    with torch.no_grad():
        expected = subject.velocity(module, inputs)
    module.train()
    if hasattr(subject.training, "configure_train_mode"):
        subject.training.configure_train_mode(module)
    worst = 0.0
    for seed in (1, 2):
        torch.manual_seed(seed)
        found = subject.velocity(module, inputs)
        worst = max(worst, difference(found.detach(), expected))
    problems = [] if found.requires_grad else ["the velocity has no gradient in train mode"]
    return Measured(f"train and eval mode differ by {worst:g}", problems, worst, LIMIT, "absolute")
