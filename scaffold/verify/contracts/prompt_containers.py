"""Prompt ids are read from every container that the engine uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError

ID = "prompt-containers"
TITLE = "prompt ids give one velocity whatever container they come in"
PITFALLS = (28,)
LIMIT = 0.0  # the same ids give the same operations
PROMPTS = ((5, 6, 7, 8), (20, 19, 18, 17))
RAGGED = ((5, 6, 7), (20, 19, 18, 17))


def run(subject: Any) -> Measured:
    """Compare each container with the stack of lists that every other contract uses."""
    if subject.needs_embeddings:
        raise NotDrivableError("training takes the embeddings of the rollout and reads no ids")
    module = subject.new_module()
    column = subject.spec.get("prompt", {}).get("column") or "prompt_token_ids"
    worst, problems, tried = 0.0, [], []
    for name, prompts, make in _containers():
        settings = subject.settings()
        trajectory = subject.trajectory(len(prompts), settings)
        batch = subject.micro_batch(prompts)
        reference = subject.prepared(module, settings, trajectory, batch)[0]
        content = {key: batch[key] for key in ("prompts", "attention_mask")} | {column: make(prompts)}
        try:
            inputs = subject.prepared(module, settings, trajectory, content)[0]
            with torch.no_grad():
                worst = max(worst, relative(subject.velocity(module, inputs), subject.velocity(module, reference)))
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:150]}")
            continue
        tried.append(name)
    return Measured(f"{', '.join(tried)}: {worst:g} apart", problems, worst, LIMIT, "relative")


def _containers() -> list[tuple[str, Any, Callable[[Any], Any]]]:
    def arrays(prompts: Any) -> Any:
        column = np.empty(len(prompts), dtype=object)
        column[:] = [np.array(ids) for ids in prompts]
        return column

    return [
        ("a list of lists", RAGGED, lambda prompts: [list(ids) for ids in prompts]),
        ("an array of arrays", RAGGED, arrays),
        ("a list of tensors", RAGGED, lambda prompts: [torch.tensor(ids) for ids in prompts]),
        ("a 2-D tensor", PROMPTS, torch.tensor),
        ("a 1-D tensor", PROMPTS[:1], lambda prompts: torch.tensor(prompts[0])),
    ]
