"""Each sample's velocity in a batch equals its velocity alone."""

from __future__ import annotations

from typing import Any

from scaffold.verify.measured import Measured
from scaffold.verify.subject.alone import measure_alone

ID = "batch-equals-singles"
TITLE = "in a batch of equally long prompts each sample gets the velocity, mean and log-prob it gets alone"
PITFALLS = (14,)
PROMPTS = ((5, 6, 7, 8), (20, 19, 18, 17), (11, 3, 12, 4))


def run(subject: Any) -> Measured:
    """Compare batches of two, three and four with their samples one by one, at different noise levels and latents."""
    return measure_alone(subject, [PROMPTS, PROMPTS[:2], (*PROMPTS, PROMPTS[0])], (0, 2))
