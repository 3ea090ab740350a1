"""Rendered trees that the tests of ``new`` share, tiny checkpoints, altered copies of vllm-omni."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_checkpoint import write_checkpoint

from scaffold.files.resources import kit_root

DEFAULT = "0.27.0rc1"
RELEASES = {"v0.1.0": "0.22.0", "v0.2.0": "0.24.0", "main": DEFAULT, "v0.3.0": "0.28.0rc1"}


@pytest.fixture
def tiny_checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Return `write_checkpoint` for folders below the test's own."""

    def write(*arguments: Any, name: str = "checkpoint", **options: Any) -> Path:
        return write_checkpoint(tmp_path / name, *arguments, **options)

    return write


@pytest.fixture(scope="session")
def default_tree(rendered: Callable[..., Path]) -> Path:
    """Return the output for the default release."""
    return rendered("bagel", "--vllm-omni", DEFAULT)


@pytest.fixture(scope="session")
def release_trees(rendered: Callable[..., Path]) -> dict[str, Path]:
    """Return the output for each release of verl-omni with the vllm-omni that it pins."""
    return {name: rendered("bagel", "--profile", name, "--vllm-omni", version) for name, version in RELEASES.items()}


@pytest.fixture(scope="session")
def kit_passes(warm_python: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that runs the rendered tests of a tree under the contract kit; all must pass."""

    def run(tree: Path, profile: str = "main", *options: str) -> None:
        done = warm_python(
            ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", *options, "tests/pipelines"],
            cwd=tree,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(kit_root()), str(tree)]),
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMNI_SCAFFOLD_KIT_PROFILE": profile,
                "LOCAL_RANK": "0",
            },
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert re.search(r"\b\d\d+ passed", done.stdout), done.stdout[-500:]
        assert "skipped" not in done.stdout, done.stdout[-500:]

    return run
