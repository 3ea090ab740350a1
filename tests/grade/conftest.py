"""Fixtures of this room."""

from __future__ import annotations

import types

import pytest

from tests.grade.rendered_calls import load_calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The rendered denoiser_calls.py of a package with a ported denoiser."""
    return load_calls(monkeypatch)
