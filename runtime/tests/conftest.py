"""Fixtures of this room. The runtime imports verl-omni; where that is not installed, the kit beside it stands in."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

KIT = Path(__file__).resolve().parents[2] / "scaffold" / "verify" / "kit"

pytest.importorskip("torch")
if find_spec("verl_omni") is None and KIT.is_dir():
    sys.path.insert(0, str(KIT))
pytest.importorskip("verl_omni", reason="neither verl-omni nor its stand-in is here")

from planned_calls import Planned  # noqa: E402


@pytest.fixture
def calls() -> Planned:
    """Recorder and replay of a plan whose samples share calls."""
    return Planned()
