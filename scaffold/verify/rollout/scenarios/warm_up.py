"""The engine's warm-up request; if it fails, the server does not start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 47
DTYPE = "float32"
CHECK = Check("rollout-warm-up", "The adapter takes the first request, which is the engine's own", 0, "errors")
CHECKS = (CHECK,)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Let the engine make it: an image where the pipeline can take one, nothing that training sends.

    Raises:
        NotApplicable: this engine makes none for the pipeline.
    """
    recipe = bench.recipe
    output = bench.engine.warm_up(recipe.height, recipe.width, recipe.num_frames)
    if output is None:
        raise NotApplicable("the engine starts without one")
    error = getattr(output, "error", None)
    yield Measurement(CHECK.id, float(bool(error)), str(error or "it goes through"), floor=0.0)
