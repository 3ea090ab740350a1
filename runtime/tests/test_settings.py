"""Settings of guidance, filled in from a recipe's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from flow_grpo_runtime import guidance
from flow_grpo_runtime.guidance import settings_of

RESOLVE = settings_of({"scale": 4.0, "kind": "global", "interval": (0.0, 1.0)}, choices={"kind": ("global", "channel")})


def test_what_is_not_given_is_the_recipes() -> None:
    assert RESOLVE({"scale": "5", "other": 1, "kind": None}) == {"scale": 5.0, "kind": "global", "interval": (0.0, 1.0)}
    assert RESOLVE({"kind": "channel", "interval": [0.4, 1]})["kind"] == "channel"


def test_a_value_that_is_none_of_its_choices_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kind must be one of \('global', 'channel'\), got 'none'"):
        RESOLVE({"kind": "none"})


# How the ``common.py`` of packages began before version 12.
FORMULAS = """
from flow_grpo_runtime.guidance import PackedGuidance, guide_of, settings_of, velocity_of
from flow_grpo_runtime.levels import schedule, setup_of
from flow_grpo_runtime.settings_file import setting

guide = guide_of(lambda conditional, unconditional, guidance, sigma, schedule: conditional)
"""


def test_a_package_with_formulas_is_refused_in_one_line_that_says_what_converts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package_of_before.py").write_text(FORMULAS)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match="has formulas of guidance.*`omni-scaffold update PACKAGE`") as refused:
        importlib.import_module("package_of_before")
    assert "\n" not in str(refused.value)
    assert "package_of_before" not in sys.modules
    assert not hasattr(guidance, "of_no_version")
