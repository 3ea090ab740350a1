"""Recorder and replay of one plan, and what their tests have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flow_grpo_runtime.calls import CallRecorder
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.records import read_record
from flow_grpo_runtime.replay import DenoiserCalls

GUIDANCE = {"guidance_scale": 3.0}


@dataclass(frozen=True)
class Planned:
    """Both sides of a plan."""

    plan: CallPlan = field(default_factory=lambda: CallPlan(stacked=True))

    def CallRecorder(self) -> CallRecorder:
        return CallRecorder(self.plan)

    def DenoiserCalls(self, *args: Any, **kwargs: Any) -> DenoiserCalls:
        return DenoiserCalls(self.plan, *args, **kwargs)

    @staticmethod
    def read_calls(contents: Sequence[torch.Tensor]) -> list[Any]:
        return [read_record(content) for content in contents]


def guide(conditional: torch.Tensor, unconditional: torch.Tensor | None) -> torch.Tensor:
    return conditional if unconditional is None else unconditional + 3.0 * (conditional - unconditional)


def replayed(calls: Planned, content: torch.Tensor, latents: torch.Tensor, step: int, denoiser: Any) -> torch.Tensor:
    found = calls.DenoiserCalls(calls.read_calls([content]), latents, step)
    return found.velocity(found.evaluate(denoiser, torch.float32))
