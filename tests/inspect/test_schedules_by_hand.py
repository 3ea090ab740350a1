"""Schedules of real pipelines, written by hand from their sources."""

from __future__ import annotations

from typing import Any

import pytest

from scaffold.inspect import inspect_pipeline
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream

# key: evaluations, direction of the loop's times, shift (None: none, one that follows the image, or of a class that is
# not followed), dimensions of the sample (None: not of a literal shape).
BY_HAND: dict[str, dict[str, tuple[Any, ...]]] = {
    "0.30.0": {
        "MammothModa2DiTPipeline": ("n", None, None, None),
        "AuKPipeline": ("n", "ascending", None, None),
        "WanS2VPipeline": ("n", None, None, None),
        # Its grid of eight distilled levels or its straight line: an option of the engine chooses.
        "LongCatVideoAvatarPipeline": (None, None, None, None),
        "BooguImagePipeline": ("n", None, None, 4),
        "LancePipeline": ("n", "descending", 3.0, 2),
        # Its number of steps goes through a dictionary that a loop fills.
        "MingImagePipeline": (None, None, None, 4),
        "MingImageDiffusionPipeline": ("n", None, None, None),
        # The output is negated, and with a time for each token so is the step.
        "SanaWmPipeline": ("n", None, None, None),
        # As many turns as a setting says that is not a request's.
        "InternVLAA1Pipeline": (None, None, None, 3),
        "Gr00tN1d7Pipeline": (None, None, None, 3),
        "Pi0Pipeline": ("n", None, None, None),
        "Pi05Pipeline": ("n", None, None, None),
        "HunyuanImage3ForCausalMM": ("n", None, None, None),
        "OmniGen2Pipeline": ("n", None, None, 4),
        "LingBotVideoPipeline": ("n", None, None, 5),
        "AnimaPipeline": ("n", None, None, 5),
    },
    "0.27.0rc1": {
        # It carries one clip, and gives its step a batch of one.
        "WanS2VPipeline": ("n", None, None, 4),
        "BooguImagePipeline": ("n", None, None, 4),
        "LingBotVideoPipeline": ("n", None, None, 5),
        "OmniGen2Pipeline": ("n", None, None, 4),
        "HunyuanImage3ForCausalMM": ("n", None, None, None),
    },
    "0.22.0": {
        "WanS2VPipeline": ("n", None, None, 4),
        "OmniGen2Pipeline": ("n", None, None, 4),
        "HunyuanImage3ForCausalMM": ("n", None, None, None),
    },
}
FACTS = (
    "answers.scheduler.steps",
    "answers.scheduler.direction",
    "answers.scheduler.shift",
    "detail.scheduler.sample_rank",
)


@pytest.mark.parametrize(
    ("version", "key"), [(version, key) for version, table in BY_HAND.items() for key in table], ids=str
)
def test_schedule(version: str, key: str) -> None:
    report = inspect_pipeline(locate(version), key)
    assert tuple(report.value(name) for name in FACTS) == BY_HAND[version][key]
    for name, value in zip(FACTS, BY_HAND[version][key], strict=True):
        assert (report.fact(name).confidence == "unknown") is (value is None), name
        assert value is None or report.fact(name).evidence, name
