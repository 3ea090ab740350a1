"""Noise is drawn for each request."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.contracts.rollout_noise import LIMIT
from scaffold.verify.measured import Measured


def run(subject: Any) -> Measured:
    """Correlate what each recorded step added to its mean with that of other steps and samples."""
    module, settings = subject.new_module(), subject.settings()
    names, rows = [], []
    for number, sample in enumerate(subject.recording["samples"][:2], start=1):
        names.append(f"the initial latents of sample {number}")
        rows.append(sample["latents"][0].flatten())
        for step, (_, mean, *_) in enumerate(subject.steps(module, [sample], settings)):
            names.append(f"step {step + 1} of sample {number}")
            rows.append((sample["latents"][step + 1] - mean[0]).flatten())
    correlation = torch.corrcoef(torch.stack(rows).double()).abs().fill_diagonal_(0.0)
    worst = int(correlation.argmax())
    one, other = names[worst // len(names)], names[worst % len(names)]
    value = float(correlation.max())
    return Measured(f"{value:.2f} at most, between {one} and {other}", (), value, LIMIT, "correlation")
