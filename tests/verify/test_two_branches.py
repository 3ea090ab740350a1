"""Which call is the one without the prompt: told by what it is given, names included."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from scaffold.verify.subject.stand_in_velocity import TwoBranches  # noqa: E402

SUBJECT = SimpleNamespace(attributes={}, config=None, geometry=SimpleNamespace(shape=(4, 2)))
COMMON = {"latents": torch.ones(1, 4, 2), "time": torch.ones(1)}
PROMPT = torch.arange(3.0)[None]


def calls(module: TwoBranches) -> tuple[int, int]:
    """How many calls were taken for ones with the prompt, and without it."""
    return len(module.conditional), len(module.unconditional)


def test_negative_arguments_that_are_some_of_the_positive_ones() -> None:
    positive, negative = {**COMMON, "prompt": PROMPT}, dict(COMMON)
    module = TwoBranches(SUBJECT, negative, positive)
    module(**positive)
    assert calls(module) == (1, 0)
    module(**negative)
    module(**negative, prompt=None)
    assert calls(module) == (1, 2)


def test_other_values_tell_and_names_do_not() -> None:
    """An adapter may hand the branch without the prompt everything, its own values put in."""
    positive, negative = {**COMMON, "prompt": PROMPT, "mask": PROMPT > 0}, {**COMMON, "prompt": -PROMPT}
    module = TwoBranches(SUBJECT, negative, positive)
    module(**positive)
    module(**{**positive, **negative})
    module(**negative)
    assert calls(module) == (1, 2)


def test_part_of_the_negative_arguments_is_left_out_and_part_is_another() -> None:
    """The prompt is left out, and zeros stand for its mask: a call with both is the one with the prompt."""
    positive, negative = {**COMMON, "prompt": PROMPT, "mask": PROMPT > 0}, {**COMMON, "mask": PROMPT < 0}
    module = TwoBranches(SUBJECT, negative, positive)
    module(**positive)
    module(**negative)
    assert calls(module) == (1, 1)


def test_values_that_are_made_anew_for_each_call_are_compared_by_what_they_are() -> None:
    positive, negative = {**COMMON, "lengths": [3, 4]}, {**COMMON, "lengths": [1, 2]}
    module = TwoBranches(SUBJECT, negative, positive)
    module(**{**COMMON, "lengths": [1, 2]})
    module(**{**COMMON, "lengths": [2]})
    module(**{**COMMON, "lengths": [3, 4]})
    assert calls(module) == (1, 2)


def test_what_an_adapter_keeps_for_itself_tells_nothing() -> None:
    positive, negative = {**COMMON, "prompt": PROMPT, "wide": 9}, {**COMMON, "prompt": -PROMPT, "wide": 5}
    module = TwoBranches(SUBJECT, negative, positive)
    module(**COMMON, prompt=PROMPT)
    module(**COMMON, prompt=-PROMPT)
    assert calls(module) == (1, 1)


@pytest.mark.parametrize("first", ["negative", "positive"])
def test_both_branches_in_one_call(first: str) -> None:
    latents = torch.stack([torch.ones(4, 2), torch.zeros(4, 2)])
    positive = {"latents": latents, "prompt": torch.ones(2, 3)}
    negative = {"latents": latents, "prompt": torch.zeros(2, 3)}
    module = TwoBranches(SUBJECT, negative, positive)
    alone = module(**negative)[0], module(**positive)[0]
    one, other = (negative, positive) if first == "negative" else (positive, negative)
    joined = module(**{name: torch.cat([one[name], other[name]]) for name in one})[0]
    assert torch.equal(joined, torch.cat(alone if first == "negative" else alone[::-1]))
    assert calls(module) == (2, 2)


def test_without_a_second_branch_every_call_has_the_prompt() -> None:
    module = TwoBranches(SUBJECT, None, dict(COMMON))
    module(**COMMON)
    assert calls(module) == (1, 0)
