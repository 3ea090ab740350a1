"""The rules read vllm-omni where it is at hand: here it never is, whatever the machine has, unless a test says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.check.example import BASE, base_tree


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that is the cache of downloads for the test; it is not there yet."""
    cache = tmp_path / "cache-of-downloads"
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(cache))
    return cache


@pytest.fixture
def write_base() -> Callable[..., Path]:
    """Return a function that writes a tree of the examples below a folder."""

    def write(root: Path, base: str = BASE) -> Path:
        for name, text in base_tree(base).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                path.symlink_to(text[3:].strip())
            else:
                path.write_text(text, encoding="utf-8")
        return root

    return write
