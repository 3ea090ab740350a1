"""Fixtures of this room; the runtime imports verl-omni, for which the kit stands in."""

from __future__ import annotations

import sys

import pytest

from scaffold.files.resources import kit_root

pytest.importorskip("torch")
sys.path.insert(0, str(kit_root()))

from tests.runtime.planned_calls import Planned


@pytest.fixture
def calls() -> Planned:
    """Recorder and replay of a plan whose samples share calls."""
    return Planned()
