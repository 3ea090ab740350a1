"""A batch gives each sample what it gets alone."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.noise_floor import limit_for, noise_floor

ID = "batch-equals-singles"
TITLE = "in a batch of equally long prompts each sample gets the velocity and log-prob it gets alone"
PITFALLS = (14,)
PROMPTS = ((5, 6, 7, 8), (20, 19, 18, 17), (11, 3, 12, 4))


def run(subject: Any) -> Measured:
    """Compare one batch with its samples one by one, at different noise levels and latents."""
    module = subject.new_module()
    settings = subject.settings()
    worst, worst_log_prob = 0.0, 0.0
    for step in (0, 2):
        with torch.no_grad():
            together = subject.velocity(module, subject.inputs(module, PROMPTS, step=step)[0])
            log_probs = subject.log_prob(module, PROMPTS, settings, step=step)[0]
            for i, prompt in enumerate(PROMPTS):
                alone = subject.velocity(module, subject.inputs(module, [prompt], step=step, seed=1 + i)[0])
                worst = max(worst, relative(together[i], alone[0]))
                log_prob = subject.log_prob(module, [prompt], settings, step=step, seed=1 + i)[0]
                worst_log_prob = max(worst_log_prob, (log_probs[i] - log_prob[0]).abs().item())
    floor = noise_floor(subject, module)
    return Measured(
        f"velocity differs by {worst:.1e} relative, log-prob by {worst_log_prob:.1e}; rounding alone gives {floor:.1e}",
        (),
        worst,
        limit_for(floor),
        "relative",
        floor,
    )
