"""Engine configuration and pipeline output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from omni_scaffold_kit.profile import ACTIVE


def _to_cpu(value: Any) -> Any:
    """Detach tensors and move them to the CPU, inside containers too."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _to_cpu(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_cpu(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_to_cpu(item) for item in value)
    return value


@dataclass
class OmniDiffusionConfig:
    """The settings of the engine that a pipeline's constructor may read."""

    model: str | None = None
    model_class_name: str | None = None
    dtype: torch.dtype = torch.bfloat16
    model_config: dict[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False
    revision: str | None = None
    num_gpus: int | None = None
    output_type: str = "pil"
    enforce_eager: bool = False
    custom_pipeline_args: dict[str, Any] | None = None
    override_transformer_cls_name: str | None = None
    flow_shift: float | None = None
    quantization_config: Any = None
    max_num_seqs: int = 1

    @classmethod
    def from_kwargs(cls, **kwargs: Any) -> OmniDiffusionConfig:
        """Make a configuration from keyword arguments."""
        return cls(**kwargs)


@dataclass
class _Output:
    """The fields that every version has; ``to_cpu`` moves tensors when the object is made."""

    output: Any = None
    trajectory_timesteps: Any = None
    trajectory_latents: Any = None
    trajectory_log_probs: Any = None
    trajectory_decoded: list[Any] | None = None
    error: str | None = None
    aborted: bool = False
    abort_message: str | None = None
    post_process_func: Callable[..., Any] | None = None
    stage_durations: dict[str, float] = field(default_factory=dict)
    peak_memory_mb: float = 0.0
    to_cpu: bool = False

    def __post_init__(self) -> None:
        if not self.to_cpu:
            return
        moved = ("output", "trajectory_timesteps", "trajectory_latents", "trajectory_log_probs", "custom_output")
        for name in moved:
            if hasattr(self, name):
                setattr(self, name, _to_cpu(getattr(self, name)))


if ACTIVE.custom_output:

    @dataclass
    class DiffusionOutput(_Output):
        """What a pipeline returns; trajectories travel in ``custom_output``."""

        custom_output: dict[str, Any] = field(default_factory=dict)

else:

    @dataclass
    class DiffusionOutput(_Output):  # type: ignore[no-redef]
        """What a pipeline returns; trajectories travel in their own fields."""
