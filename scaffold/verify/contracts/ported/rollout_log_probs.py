"""The log-probs that the real pipeline's rollout recorded are those that training recomputes here."""

from __future__ import annotations

from typing import Any

from scaffold.verify.contracts.rollout_log_probs import LIMIT
from scaffold.verify.measured import Measured
from scaffold.verify.subject.recorded import MisfitError


def run(subject: Any) -> Measured:
    """Recompute a rollout of each SDE type, and one of an edit without images, with the weights that made it."""
    module = subject.new_module()
    worst, where = 0.0, ""
    series: dict[str, list[float]] = {}
    recording = subject.recording
    samples = [*recording["kinds"].items(), *(("sde", sample) for sample in recording["plain"])]
    for number, (kind, sample) in enumerate(samples):
        settings = subject.settings(sde_type=kind, noise_level=subject.recording["noise_level"])
        try:
            again = subject.recomputed(module, [sample], settings)[0]
        except MisfitError as reason:
            return Measured("", [str(reason)])
        difference = float((again - sample["log_probs"]).abs().max())
        name = kind if number < len(recording["kinds"]) else f"{kind} without images"
        series |= {f"{name}, rollout": sample["log_probs"].tolist(), f"{name}, training": again.tolist()}
        if difference > worst or difference != difference:
            worst, where = difference, f" ({name})"
    return Measured(f"{worst:.1e} apart{where}", (), worst, LIMIT, "absolute", 6e-8, series)
