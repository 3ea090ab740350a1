"""A rollout's outputs for training, read from the engine's output as verl-omni does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Trajectory:
    """One sample.

    Attributes:
        token_ids: ids of the prompt that the data set gives to training.
        latents: ``(T + 1, …)``.
        timesteps: ``(T,)``.
        log_probs: ``(T,)`` where all is well; None where the rollout recorded none.
        velocities: what the rollout's model predicted at each of the T steps, ``(1, …)``; None where not seen.
        sigmas: noise levels of the T steps; None where a step was not seen.
        means: what the rollout added its noise to, of the T steps; None where a step was not seen.
        walked: steps of the scheduler that were seen, recorded or not.
        shift: ``mu`` that the scheduler's ``set_timesteps`` was given; None without one.
        extra: further tensors that the rollout hands to training, by name.
    """

    token_ids: list[int]
    latents: torch.Tensor
    timesteps: torch.Tensor
    log_probs: torch.Tensor | None
    velocities: list[torch.Tensor | None] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    sigmas: list[float | None] = field(default_factory=list)
    means: list[torch.Tensor | None] = field(default_factory=list)
    walked: int = 0
    shift: float | None = None

    @property
    def steps(self) -> int:
        """Number of steps that training is to recompute."""
        return int(self.timesteps.shape[0])

    @property
    def recorded(self) -> int:
        """Number of log-probs that came with them."""
        return 0 if self.log_probs is None else int(self.log_probs.shape[0])

    @property
    def aligned(self) -> bool:
        """Whether every step has one log-prob and the latents before and after it."""
        return self.recorded == self.steps and int(self.latents.shape[0]) == self.steps + 1

    @property
    def problem(self) -> str:
        """A message with the received and the required sizes."""
        return (
            f"{self.recorded} log-probs and {int(self.latents.shape[0])} latents for {self.steps} recorded steps,"
            f" which need {self.steps} and {self.steps + 1}"
        )


def read_trajectory(output: Any, token_ids: list[int]) -> Trajectory:
    """Take the trajectory out of a ``DiffusionOutput`` and drop the batch axis of one.

    Older releases carry it in ``custom_output``, later ones in ``trajectory_*``, tensors for training in the metadata
    groups ``prompt_embeddings`` and ``rl``.

    Raises:
        RuntimeError: the engine reports an error, or there are no latents or timesteps.
    """
    custom = getattr(output, "custom_output", None) or {}
    found = trajectory_tensors(output)
    missing = [name for name in ("latents", "timesteps") if found[name] is None]
    if missing:
        raise RuntimeError(f"the rollout adapter returned no {' and no '.join(missing)}")
    extra: dict[str, Any] = {name: value for name, value in custom.items() if not name.startswith("all_")}
    envelope = output.output if isinstance(output.output, dict) else {}
    for group in ("prompt_embeddings", "rl"):
        extra |= (envelope.get("metadata") or {}).get(group) or {}
    return Trajectory(
        list(token_ids),
        latents=_only(found["latents"]),
        timesteps=_only(found["timesteps"]),
        log_probs=_only(found["log_probs"]),
        extra={name: _only(value) for name, value in extra.items() if value is not None},
    )


def trajectory_tensors(output: Any) -> dict[str, Any]:
    """Latents, timesteps and log-probs of a ``DiffusionOutput``, None where it has none.

    Raises:
        RuntimeError: the engine reports an error.
    """
    if getattr(output, "error", None):
        raise RuntimeError(f"the engine reports: {output.error}")
    custom = getattr(output, "custom_output", None) or {}
    found = {}
    for name in ("latents", "timesteps", "log_probs"):
        value = custom.get(f"all_{name}")
        found[name] = getattr(output, f"trajectory_{name}", None) if value is None else value
    return found


def _only(value: Any) -> Any:
    """The one entry of a batch; a scalar stays."""
    if value is None or (isinstance(value, torch.Tensor) and value.dim() == 0):
        return value
    return value[0] if isinstance(value, torch.Tensor | list | tuple) else value
