"""Facts beside the answers that a report shows, under the question that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from scaffold.inspect.facts import UNKNOWN

if TYPE_CHECKING:
    from scaffold.inspect.facts import Fact

DETAILS = "details."
# Question and name to the fact.
SHOWN = {
    "prompt.negative": "detail.negative.kind",
    "prompt.negative_text": "detail.negative.text",
    "prompt.media": "detail.media.inputs",
    "prompt.required": "detail.media.required",
    "prompt.sizes": "detail.request.sizes",
    "prompt.default_seed": "detail.request.default_seed",
    "denoiser.predicts_clean": "detail.denoiser.predicts_clean",
    "cfg.formula": "detail.cfg.formula",
    "cfg.interval_rule": "detail.cfg.interval_rule",
    "scheduler.default_steps": "detail.scheduler.default_steps",
    "scheduler.loop": "detail.scheduler.loop_location",
}


def shown_details(facts: Mapping[str, Fact]) -> Iterator[tuple[str, Fact]]:
    """Each shown fact under ``question.name``; one that was not asked for is unknown.

    Args:
        facts: those of a report.
    """
    for name, key in SHOWN.items():
        yield name, facts.get(key, UNKNOWN)
