"""A pipeline class to inherit from where vllm-omni's own cannot be imported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


class StandInPipeline(nn.Module):
    """The constructor and attributes that every vllm-omni pipeline has, and no model.

    Args:
        od_config: the ``OmniDiffusionConfig`` of the engine.
        prefix: weight prefix of the pipeline, empty for all in use.

    Attributes:
        scheduler: what the denoising loop steps with; a rollout adapter puts its own here.
        scheduler_kwargs: extra keyword arguments of each ``scheduler.step``.
        received_weights: every ``(name, tensor)`` that reached :meth:`load_weights`, in order.
    """

    def __init__(self, *, od_config: Any, prefix: str = "") -> None:
        super().__init__()
        self.od_config = od_config
        self.prefix = prefix
        self.scheduler: Any = None
        self.scheduler_kwargs: dict[str, Any] = {}
        self.received_weights: list[tuple[str, torch.Tensor]] = []

    def forward(self, req: Any) -> Any:
        """Raise: the denoising loop is upstream's.

        Raises:
            NotImplementedError: always; replace this method in a test, or run with vllm-omni installed.
        """
        upstream = next(cls for cls in type(self).__mro__ if cls.__dict__.get("__stand_in__"))
        raise NotImplementedError(
            f"{upstream.__module__}.{upstream.__name__} is the contract kit's stand-in and has no denoising loop; "
            "install vllm-omni to run the rollout"
        )

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Record ``weights`` in :attr:`received_weights` and return their names."""
        received = list(weights)
        self.received_weights.extend(received)
        return {name for name, _ in received}


def stand_in_class(name: str, module: str) -> type[StandInPipeline]:
    """Make the stand-in that ``module`` exports as ``name``."""
    return type(name, (StandInPipeline,), {"__module__": module, "__qualname__": name, "__stand_in__": True})
