"""What a package's ``common.py`` has: what rollout and training of its model must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

# Log-probs leave the Gaussian's normaliser out, on both sides.
INCLUDE_LOGPROB_NORMALIZER = False


@dataclass(frozen=True)
class CallPlan:
    """How a pipeline calls its denoiser, and how training may.

    Attributes:
        method: of the denoiser, that is called.
        output: key of the prediction in what it returns; None for a tensor, one first in a tuple, or ``sample``.
        first: the argument that says that no call was made before, where later calls rest on what the first one left
            in the module; each is then recorded as if it were the first.
        stacked: samples of a micro-batch share a call where the arguments of each have the same shapes.
        padded: shorter texts are padded to that, behind their mask.
        others: the fewest and the most predictions that guidance combines with the conditional one.
        left_out: arguments of the engine's class that training's does without, and the prediction does not hang on.
    """

    method: str = "forward"
    output: str | int | None = None
    first: str | None = None
    stacked: bool = False
    padded: bool = False
    others: tuple[int, int] = (1, 1)
    left_out: tuple[str, ...] = ()


class Common(Protocol):
    """The names of ``common.py`` that adapters use; a module is one."""

    CFG_DEFAULTS: Mapping[str, Any]
    CALLS: CallPlan

    def resolve_guidance(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in the defaults of guidance."""
