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
    """Correlate what each step added to its mean, over two samples of one prompt."""
    import torch

    samples = bench.roll_out(bench.recipe, [bench.texts[0]] * 2)
    names, rows = [], []
    for index, sample in enumerate(samples):
        found = bench.training.recompute([sample], bench.recipe)
        names.append(f"the initial latents of sample {index + 1}")
        rows.append(sample.latents[0].float().reshape(-1))
        for step, mean in enumerate(found.means):
            names.append(f"step {step + 1} of sample {index + 1}")
            rows.append((sample.latents[step + 1].float() - mean[0]).reshape(-1))
    correlation = torch.corrcoef(torch.stack(rows)).abs().fill_diagonal_(0.0)
    worst = int(correlation.argmax())
    one, other = names[worst // len(names)], names[worst % len(names)]
    floor = rows[0].numel() ** -0.5
    yield Measurement(CHECK.id, float(correlation.max()), f"largest between {one} and {other}", floor=floor)
