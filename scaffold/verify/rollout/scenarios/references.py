"""Requests without the images that the others bring to be edited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Measurement, NotApplicable, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import Bench

ORDER = 27
DTYPE = "float32"
CHECKS = equality("without-references", "Requests of words alone to a package for edits")


def measure(bench: Bench) -> Iterator[Measurement]:
    """The pipeline then runs other branches, and gives its denoiser other arguments."""
    if not bench.references:
        raise NotApplicable("the package is made for requests of words alone")
    with bench.engine.without_media():
        samples = bench.roll_out(bench.recipe, bench.texts[:2])
    yield from bench.equal(CHECKS, bench.compare(samples, bench.recipe))
