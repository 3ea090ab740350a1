"""Both sides guide with the same values."""

from __future__ import annotations

from typing import Any

from scaffold.verify.contracts.rollout_log_probs import LIMIT
from scaffold.verify.formulas import difference
from scaffold.verify.measured import Measured, NotDrivableError


def run(subject: Any) -> Measured:
    """What a request asks for must decide the rollout, and training must refuse recorded calls of another scale."""
    name = subject.spec.get("guidance", {}).get("scale") if subject.spec else subject.table.guidance
    guided = subject.recording["guided"]
    if not name or not guided:
        raise NotDrivableError("the pipeline has no guidance scale")
    module, problems, worst = subject.new_module(), [], 0.0
    default = subject.recording["samples"][0]
    if subject.spec:
        subject.inputs_of(module, [default])  # raises where training's defaults are not the rollout's
    for scale, sample in guided.items():
        settings = subject.settings(**{name: scale})
        worst = max(worst, difference(subject.recomputed(module, [sample], settings)[0], sample["log_probs"]))
        if not subject.spec:
            continue  # what it hands to training holds no scale
        try:
            subject.inputs_of(module, [sample])
            problems.append(f"calls of a rollout with {name}={scale} are taken for those of the default")
        except ValueError:
            continue
    shown = ", ".join(f"{scale:g}" for scale in guided)
    return Measured(f"{name} {shown}: log-probs {worst:.1e} apart", problems, worst, LIMIT, "absolute")
