"""A rendered package of each model beyond the golden one, made from the released vllm-omni."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pixel_checkpoint import PLAIN_CONFIG, PLAIN_TENSORS, write_checkpoint


@pytest.fixture(scope="session")
def sensenova(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that renders ``sensenova_u1`` for a version, once; the result is the tree's root.

    ``plain`` is a checkpoint whose noise has one size; otherwise it follows the image and the model is told.
    """
    known: dict[tuple[str, str, bool], Path] = {}

    def render(version: str = "0.30.0", profile: str = "main", plain: bool = False) -> Path:
        if (version, profile, plain) not in known:
            folder = tmp_path_factory.mktemp("sensenova")
            changes = (PLAIN_TENSORS, PLAIN_CONFIG) if plain else ()
            checkpoint = write_checkpoint(folder / "checkpoint", *changes)
            flags = ("--vllm-omni", version, "--checkpoint", checkpoint, "--profile", profile)
            scaffold_cli("new", "sensenova_u1", *flags, "--out", folder / "out").success()
            known[version, profile, plain] = folder / "out"
        return known[version, profile, plain]

    return render


@pytest.fixture(scope="session")
def lance(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that renders ``lance`` as the packaged manifest has it, once; the result is the tree's root."""
    known: list[Path] = []

    def render() -> Path:
        if not known:
            out = tmp_path_factory.mktemp("lance") / "out"
            scaffold_cli("new", "lance", "--pipeline", "LancePipeline", "--vllm-omni", "0.30.0", "--out", out).success()
            known.append(out)
        return known[0]

    return render
