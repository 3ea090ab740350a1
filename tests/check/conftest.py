"""The rules read vllm-omni where it is at hand: here it never is, whatever the machine has, unless a test says so."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that is the cache of downloads for the test; it is not there yet."""
    cache = tmp_path / "cache-of-downloads"
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(cache))
    return cache
