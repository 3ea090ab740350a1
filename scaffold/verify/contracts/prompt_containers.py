"""Prompt ids are read from every container that the engine uses, or from the rollout's columns at any width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.encoded import IDS, encoded_columns
from scaffold.verify.subject.subject import PROMPTS as SUBJECT_PROMPTS

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
    for name, prompts, make in _widths() if _reads_columns(subject, module) else _containers(column):
        settings = subject.settings()
        trajectory = subject.trajectory(len(prompts), settings)
        batch = subject.micro_batch(prompts)
        reference = subject.prepared(module, settings, trajectory, batch)[0]
        content = {key: batch[key] for key in ("prompts", "attention_mask")} | make(prompts)
        try:
            inputs = subject.prepared(module, settings, trajectory, content)[0]
            with torch.no_grad():
                worst = max(worst, relative(subject.velocity(module, inputs), subject.velocity(module, reference)))
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:150]}")
            continue
        tried.append(name)
    return Measured(f"{', '.join(tried)}: {worst:g} apart", problems, worst, LIMIT, "relative")


def _reads_columns(subject: Any, module: Any) -> bool:
    """Whether training reads the rollout's ids, and fails without them."""
    settings = subject.settings()
    batch = subject.micro_batch(RAGGED)
    del batch[IDS]
    try:
        subject.prepared(module, settings, subject.trajectory(len(RAGGED), settings), batch)
    except KeyError as error:
        return IDS in str(error)
    except Exception:
        return False
    return False


def _widths() -> list[tuple[str, Any, Callable[[Any], Any]]]:
    """The columns as wide as the longest prompt, wider, and with a mask of numbers, which some queues make of it."""

    def numbers(prompts: Any) -> dict[str, torch.Tensor]:
        return {name: column.long() for name, column in encoded_columns(prompts, 9).items()}

    return [
        ("columns without padding", PROMPTS, lambda prompts: encoded_columns(prompts, len(prompts[0]))),
        ("ragged columns", RAGGED, lambda prompts: encoded_columns(prompts, 4)),
        ("wide columns", RAGGED, lambda prompts: encoded_columns(prompts, 50)),
        ("a mask of numbers", RAGGED, numbers),
    ]


def _containers(column: str) -> list[tuple[str, Any, Callable[[Any], Any]]]:
    def named(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda prompts: {column: make(prompts)}

    def arrays(prompts: Any) -> Any:
        column = np.empty(len(prompts), dtype=object)
        column[:] = [np.array(ids) for ids in prompts]
        return column

    return [
        ("a list of lists", RAGGED, named(lambda prompts: [list(ids) for ids in prompts])),
        ("an array of arrays", RAGGED, named(arrays)),
        ("a list of tensors", RAGGED, named(lambda prompts: [torch.tensor(ids) for ids in prompts])),
        ("a 2-D tensor", PROMPTS, named(torch.tensor)),
        ("a 1-D tensor", PROMPTS[:1], named(lambda prompts: torch.tensor(prompts[0]))),
    ]


def run_recorded(subject: Any) -> Measured:
    """Compare each container with the stack that every other contract uses."""
    module, settings = subject.new_module(), subject.settings()
    trajectory = subject.trajectory(len(SUBJECT_PROMPTS), settings)
    batch = subject.micro_batch(SUBJECT_PROMPTS)
    columns = {name: [subject.sample_of(prompt)["extra"][name] for prompt in SUBJECT_PROMPTS] for name in batch.keys()}  # noqa: SIM118

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
