"""Copies of vllm-omni with one thing changed, and packages to look at."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEFAULT = "0.27.0rc1"


@pytest.fixture(scope="session")
def rendered_default(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output of `new` for the default version."""
    out = tmp_path_factory.mktemp("drift") / "out"
    scaffold_cli("new", "toy", "--pipeline", "BagelPipeline", "--vllm-omni", DEFAULT, "--out", out).success()
    return out


@pytest.fixture
def package(rendered_default: Path, tmp_path: Path) -> Path:
    """Return a copy of it that may be edited."""
    return Path(shutil.copytree(rendered_default, tmp_path / "out", symlinks=True))
