"""What the tests of tapes have in common: predictions, latents, a tape of what is made of them, and that played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from flow_grpo_runtime.tape import Tape
from flow_grpo_runtime.tape_play import play, sources

Guidance = Callable[..., torch.Tensor]
SHAPE = (1, 4, 8, 8)


@dataclass(frozen=True)
class Taped:
    """A tape of one step: what it makes, of which predictions, and what the pipeline itself made of them."""

    program: dict[str, Any]
    constants: list[Any]
    predictions: list[torch.Tensor]
    latents: torch.Tensor
    made: torch.Tensor

    def played(self, predictions: list[torch.Tensor] | None = None) -> torch.Tensor:
        """The tape on these predictions; on the pipeline's own without any."""
        given = self.predictions if predictions is None else predictions
        return play(
            self.program, self.constants, {place: given[place[0]] for place in sources(self.program)}, self.latents
        )


def seeded(count: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[torch.Tensor]:
    """Predictions."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(SHAPE, generator=generator).to(dtype) for _ in range(count)]


def record(guidance: Guidance, dtype: torch.dtype = torch.float32, tape: Tape | None = None, seed: int = 0) -> Taped:
    """Run what a pipeline makes of two predictions and the latents, under a tape."""
    tape = tape or Tape()
    predictions, (latents,) = seeded(2, dtype, seed), seeded(1, seed=99)
    with torch.inference_mode():
        given = [prediction.clone() for prediction in predictions]
        for call, prediction in enumerate(given):
            tape.source(prediction, call, 0)
        tape.resume()
        try:
            made = guidance(*given, latents.clone())
        finally:
            tape.pause()
        program, constants = tape.cut(made)
    tape.clear()
    return Taped(program, constants, predictions, latents, made)
