"""Padding of the prompts changes nothing."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.noise_floor import limit_for, noise_floor
from scaffold.verify.subject.subject import PROMPTS

ID = "padding-invariance"
TITLE = "in a batch of ragged prompts each sample gets the velocity and log-prob it gets alone"
PITFALLS = (1, 8, 9, 14)


def run(subject: Any) -> Measured:
    """Compare a batch of prompts of 3, 7 and 5 tokens with its samples one by one, in several orders."""
    module = subject.new_module()
    settings = subject.settings()
    worst, worst_log_prob, which = 0.0, 0.0, ""
    for prompts in (PROMPTS, PROMPTS[::-1], PROMPTS[1:] + PROMPTS[:1]):
        with torch.no_grad():
            together = subject.velocity(module, subject.inputs(module, prompts)[0])
            log_probs = subject.log_prob(module, prompts, settings)[0]
            for i, prompt in enumerate(prompts):
                alone = subject.velocity(module, subject.inputs(module, [prompt], seed=1 + i)[0])
                log_prob = subject.log_prob(module, [prompt], settings, seed=1 + i)[0]
                difference = relative(together[i], alone[0])
                if difference > worst or difference != difference:
                    worst, which = difference, f" (a prompt of {len(prompt)} tokens padded to {max(map(len, prompts))})"
                worst_log_prob = max(worst_log_prob, (log_probs[i] - log_prob[0]).abs().item())
    floor = noise_floor(subject, module)
    return Measured(
        f"velocity differs by {worst:.1e} relative{which}, log-prob by {worst_log_prob:.1e};"
        f" rounding alone gives {floor:.1e}",
        (),
        worst,
        limit_for(floor),
        "relative",
        floor,
    )
