"""Copies of vllm-omni with one thing changed, and packages to look at."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

DEFAULT = "0.27.0rc1"


@pytest.fixture(scope="session")
def rendered_default(rendered: Callable[..., Path]) -> Path:
    """Return the output of `new` for the default version."""
    return rendered("toy", "--pipeline", "BagelPipeline", "--vllm-omni", DEFAULT)


@pytest.fixture
def package(rendered_default: Path, tmp_path: Path) -> Path:
    """Return a copy of it that may be edited."""
    return Path(shutil.copytree(rendered_default, tmp_path / "out", symlinks=True))
