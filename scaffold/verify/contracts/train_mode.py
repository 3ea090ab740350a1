"""Training mode computes what the rollout computes."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import difference
from scaffold.verify.measured import Measured
from scaffold.verify.subject.subject import PROMPTS

ID = "train-mode"
TITLE = "in train mode velocity, mean and log-prob of a step are those of eval mode, and gradients flow"
PITFALLS = (12,)
LIMIT = 0.0  # the rollout has no train mode: any difference biases the first log-prob ratio


def run(subject: Any) -> Measured:
    """Compare eval mode with ``train()`` followed by ``configure_train_mode``, under two seeds for dropout."""
    module = subject.new_module()
    inputs, _ = subject.inputs(module)
    names = ("velocity", "log-prob", "mean")
    with torch.no_grad():
        expected = (subject.velocity(module, inputs), *_step(subject, module))
    subject.train(module)
    worst = dict.fromkeys(names, 0.0)
    for seed in (1, 2):
        torch.manual_seed(seed)
        found = (subject.velocity(module, inputs), *_step(subject, module))
        for name, one, other in zip(names, found, expected, strict=True):
            worst[name] = max(worst[name], difference(one.detach(), other))
    problems = [] if found[0].requires_grad else ["the velocity has no gradient in train mode"]
    told = ", ".join(f"{name} {value:g}" for name, value in worst.items())
    return Measured(f"train and eval mode differ by {told}", problems, max(worst.values()), LIMIT, "absolute")


def _step(subject: Any, module: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-prob and mean of one guided step."""
    log_prob, mean, *_ = subject.log_prob(module, PROMPTS, subject.settings(), step=1)
    return log_prob, mean
