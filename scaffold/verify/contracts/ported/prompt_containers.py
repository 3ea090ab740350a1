"""Recorded calls are read from every container that the engine uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from scaffold.verify.contracts.prompt_containers import LIMIT
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.subject import PROMPTS


def run(subject: Any) -> Measured:
    """Compare each container with the stack that every other contract uses."""
    module, settings = subject.new_module(), subject.settings()
    trajectory = subject.trajectory(len(PROMPTS), settings)
    batch = subject.micro_batch(PROMPTS)
    columns = {name: [subject.sample_of(prompt)["extra"][name] for prompt in PROMPTS] for name in batch.keys()}  # noqa: SIM118

    def velocity(content: Any) -> torch.Tensor:
        made = subject.prepared(module, settings, trajectory, content)
        with torch.no_grad():
            found: torch.Tensor = subject.velocity(module, made[0])
            return found

    reference = velocity(batch)
    worst, problems, tried = 0.0, [], []
    for kind in ("a list", "an array of objects"):
        content = {name: values if kind == "a list" else _array(values) for name, values in columns.items()}
        try:
            worst = max(worst, relative(velocity(content), reference))
        except Exception as error:
            problems.append(f"{kind}: {type(error).__name__}: {' '.join(str(error).split())[:150]}")
            continue
        tried.append(kind)
    return Measured(f"{', '.join(tried)}: {worst:g} apart", problems, worst, LIMIT, "relative")


def _array(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
