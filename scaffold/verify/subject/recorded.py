"""A package with what its real pipeline was recorded doing."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.measured import NotDrivableError
from scaffold.verify.rollout.engine_side.recording import FILE
from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.rollout.engine_side.training import filled, schedule_misfit
from scaffold.verify.subject.checkpoint import load
from scaffold.verify.subject.geometry import Geometry
from scaffold.verify.subject.settings import Settings
from scaffold.verify.subject.subject import Subject


class MisfitError(NotDrivableError):
    """Training's schedule is not the rollout's; a step-by-step comparison would only repeat that."""


class RecordedSubject(Subject):
    """A hand-written package, the checkpoint that its pipeline loaded, and the rollouts that it made."""

    @property
    def made(self) -> dict[str, Any]:
        """``checkpoint`` and ``folder``, where the checkpoint and the recording lie; or ``unknown``, why not."""
        found: dict[str, Any] = self.job["rolled"]
        return found

    @cached_property
    def recording(self) -> dict[str, Any]:
        """What ``engine_side.recording`` wrote.

        Raises:
            NotDrivableError: there is none.
        """
        if "unknown" in self.made:
            raise NotDrivableError(self.made["unknown"])
        constants.replace(Path(self.made["checkpoint"]))
        found: dict[str, Any] = torch.load(Path(self.made["folder"], FILE), weights_only=True)
        return found

    @property
    def checkpoint(self) -> Path:
        """Folder of the tiny checkpoint."""
        self.recording  # noqa: B018
        return Path(self.made["checkpoint"])

    def new_module(self, seed: int = 0) -> Any:
        """The training module in float32 and eval mode with the weights that the rollouts were made with."""
        return load(self, self.checkpoint).eval()

    def settings(self, *, asked: set[str] | None = None, **changes: Any) -> Settings:
        changes.setdefault("local_path", str(self.checkpoint))
        changes.setdefault("steps", self.recording["steps"])
        changes.setdefault("noise_level", self.recording["noise_level"])
        size = {name: value for name, value in self.recording["size"].items() if value is not None}
        return super().settings(asked=asked, **{**size, **self.recording["guidance"], **changes})

    @cached_property
    def geometry(self) -> Geometry:
        size, latents = self.recording["size"], self.recording["samples"][0]["latents"]
        return Geometry(size["height"], size["width"], tuple(latents.shape[1:]))

    def batch_of(self, samples: list[dict[str, Any]]) -> Any:
        """A micro-batch of recorded samples: the data set's ids, and what the rollout returned."""
        content = self._ids([sample["token_ids"] for sample in samples])
        for name in samples[0]["extra"]:
            values = [sample["extra"][name] for sample in samples]
            if all(isinstance(value, Tensor) for value in values):
                content[name] = torch.stack(filled(values))
        return content

    @staticmethod
    def trajectory_of(samples: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
        """Latents ``(B, T + 1, …)`` and timesteps ``(B, T)`` as they were recorded."""
        return tuple(torch.stack([sample[name] for sample in samples]) for name in ("latents", "timesteps"))  # type: ignore[return-value]

    def recomputed(self, module: Any, samples: list[dict[str, Any]], settings: Settings) -> Tensor:
        """Log-probs ``(B, T)`` of recorded trajectories, as the training adapter computes them."""
        return torch.stack([found[0].float() for found in self.steps(module, samples, settings)], dim=1)

    def steps(self, module: Any, samples: list[dict[str, Any]], settings: Settings) -> list[tuple[Tensor, ...]]:
        """What the training adapter computes for each recorded step: log-prob ``(B,)``, mean ``(B, …)`` and others.

        Raises:
            MisfitError: a hand-written package's training does not know a recorded noise level.
        """
        trajectory = self.trajectory_of(samples)
        misfit = None if self.spec else schedule_misfit(trajectory[1], self.scheduler(settings))
        if misfit is not None:
            raise MisfitError(misfit)
        rows: list[tuple[Tensor, ...]] = []
        for step in range(trajectory[1].shape[1]):
            inputs = self.prepared(module, settings, trajectory, self.batch_of(samples), step)
            with torch.no_grad():
                rows.append(self.scored(module, settings, inputs, trajectory, step))
        return rows
