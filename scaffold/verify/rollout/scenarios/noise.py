"""Noise is independent for each step, each member of a group, and of the initial latents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Check, Measurement

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 70
DTYPE = "float32"
LIMIT = 0.3
CHECK = Check(
    "rollout-independent-noise",
    "The noise of every step is independent of that of other steps, of other members of the group, and of the initial"
    " latents",
    LIMIT,
    "correlation",
    (16, 17),
)
CHECKS = (CHECK,)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Correlate what each step added to its mean, over two samples of one prompt.

    The mean is the rollout's own: one that training computes otherwise would be told as noise. Only where the rollout's
    step was not seen does training stand in.
    """
    import torch

    samples = bench.roll_out(bench.recipe, [bench.texts[0]] * 2)
    names, rows = [], []
    for index, sample in enumerate(samples):
        size = sample.latents[0].numel()
        means = [mean for mean in sample.means if mean is not None and mean.numel() == size]
        if not means or len(means) < len(sample.means):
            means = list(bench.training.recompute([sample], bench.recipe).means)
        names.append(f"the initial latents of sample {index + 1}")
        rows.append(sample.latents[0].float().reshape(-1))
        for step, mean in enumerate(means):
            names.append(f"step {step + 1} of sample {index + 1}")
            rows.append(sample.latents[step + 1].float().reshape(-1) - mean.reshape(-1))
    correlation = torch.corrcoef(torch.stack(rows)).abs().fill_diagonal_(0.0)
    worst = int(correlation.argmax())
    one, other = names[worst // len(names)], names[worst % len(names)]
    floor = rows[0].numel() ** -0.5
    yield Measurement(CHECK.id, float(correlation.max()), f"largest between {one} and {other}", floor=floor)
