"""Settings of guidance, filled in from a recipe's."""

from __future__ import annotations

import pytest

from flow_grpo_runtime.guidance import settings_of

RESOLVE = settings_of({"scale": 4.0, "kind": "global", "interval": (0.0, 1.0)}, choices={"kind": ("global", "channel")})


def test_what_is_not_given_is_the_recipes() -> None:
    assert RESOLVE({"scale": "5", "other": 1, "kind": None}) == {"scale": 5.0, "kind": "global", "interval": (0.0, 1.0)}
    assert RESOLVE({"kind": "channel", "interval": [0.4, 1]})["kind"] == "channel"


def test_a_value_that_is_none_of_its_choices_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kind must be one of \('global', 'channel'\), got 'none'"):
        RESOLVE({"kind": "none"})
