"""A rendered package of each model beyond the golden one, made from the released vllm-omni."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pixel_checkpoint import PLAIN_CONFIG, PLAIN_TENSORS, write_checkpoint


@pytest.fixture(scope="session")
def sensenova(rendered: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that renders ``sensenova_u1`` for a version, once; the result is the tree's root.

    ``plain`` is a checkpoint whose noise has one size; otherwise it follows the image and the model is told.
    """
    folder = tmp_path_factory.mktemp("sensenova")
    checkpoints = {
        True: write_checkpoint(folder / "plain", PLAIN_TENSORS, PLAIN_CONFIG),
        False: write_checkpoint(folder / "ruled"),
    }

    def render(version: str = "0.30.0", profile: str = "main", plain: bool = False) -> Path:
        flags = ("--vllm-omni", version, "--checkpoint", checkpoints[plain], "--profile", profile)
        return rendered("sensenova_u1", *flags)

    return render


@pytest.fixture(scope="session")
def lance(rendered: Callable[..., Path]) -> Path:
    """Return the root of ``lance`` as the packaged manifest has it."""
    return rendered("lance", "--pipeline", "LancePipeline", "--vllm-omni", "0.30.0")
