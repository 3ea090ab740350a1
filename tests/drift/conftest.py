"""Copies of vllm-omni with one thing changed, and packages to look at."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT = "0.27.0rc1"


@pytest.fixture(scope="session")
def upstream_copies() -> ModuleType:
    """Return the module that makes altered copies of vllm-omni."""
    path = REPOSITORY / "tests/inspect/altered.py"
    spec = importlib.util.spec_from_file_location("upstream_copies_of_inspect", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def upstream(upstream_copies: ModuleType, tmp_path: Path) -> Any:
    """Return a writable copy of the default vllm-omni's source."""
    from scaffold.upstream import locate

    return upstream_copies.Copy(locate(DEFAULT), tmp_path / "upstream")


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
