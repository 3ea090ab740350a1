"""Requests without the images that the others bring to be edited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.check import LOG_PROB, Measurement, NotApplicable, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 27
DTYPE = "float32"
SEEN = 100  # times what passes, as for a control
CHECKS = equality("without-references", "Requests of words alone to a package for edits")


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """The pipeline then runs other branches, and gives its denoiser other arguments.

    Where training reads columns of an image, a rollout with one must not be equal to training without it.
    """
    if not bench.references:
        raise NotApplicable("the package is made for requests of words alone")
    with bench.engine.without_media():
        samples = bench.roll_out(bench.recipe, bench.texts[:2])
    found = bench.compare(samples, bench.recipe)
    if not bench.task.facts.get("ported"):
        blind = bench.compare(
            [replace(sample, extra=_of_words(sample.extra)) for sample in bench.first[:1]], bench.recipe
        )
        if not blind.log_prob > SEEN * LOG_PROB:
            told = f"log-probs move by {blind.log_prob:.1e} where training does not see the image of a request"
            found = replace(found, problem=found.problem or told)
    yield from bench.equal(CHECKS, found)


def _of_words(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if not name.startswith("reference_")}
