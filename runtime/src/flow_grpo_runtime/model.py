"""What a package's ``common.py`` has: what rollout and training of its model must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

# Log-probs leave the Gaussian's normaliser out, on both sides.
INCLUDE_LOGPROB_NORMALIZER = False


@dataclass(frozen=True)
class CallPlan:
    """How a pipeline calls its denoiser, and how training may.

    Attributes:
        method: name of the denoiser's method that the pipeline calls.
        output: key of the prediction in what it returns; None for a tensor, one first in a tuple, or ``sample``.
        first: argument that marks the first call, where later calls use what the first one cached in the module; every
            call is then recorded as a first one.
        stacked: samples of a micro-batch share a call where the arguments of each have the same shapes.
        padded: shorter texts are padded to the longest, and masked.
        others: the fewest and the most predictions that guidance combines with the conditional one; where these
            differ, requests bring images, and those of other sizes have calls of their own.
        left_out: arguments of the engine's class that training's has not and that do not change the prediction.
        fixed: those that change nothing at one value, with it.
        renamed: those that training's calls otherwise, with its name.
        sample_dims: tensors whose samples do not lie along the first dimension, with theirs.
    """

    method: str = "forward"
    output: str | int | None = None
    first: str | None = None
    stacked: bool = False
    padded: bool = False
    others: tuple[int, int] = (1, 1)
    left_out: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    sample_dims: Mapping[str, int] = field(default_factory=dict)

    def samples_first(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments of a call with the samples of each tensor along its first dimension, as records have them."""
        return {n: v.movedim(self.sample_dims[n], 0) if self._moved(n, v) else v for n, v in arguments.items()}

    def as_called(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """What :meth:`samples_first` was given."""
        return {n: v.movedim(0, self.sample_dims[n]) if self._moved(n, v) else v for n, v in arguments.items()}

    def _moved(self, name: str, value: Any) -> bool:
        return name in self.sample_dims and hasattr(value, "movedim")


class Common(Protocol):
    """What adapters use of ``common.py``; the module itself is passed."""

    CFG_DEFAULTS: Mapping[str, Any]
    CALLS: CallPlan

    def resolve_guidance(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in the defaults of guidance."""
