"""A rendered package for edits whose training module is composed of the shared blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def bagel_edit(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that renders ``bagel_edit`` as the packaged manifest has it, once; the result is the root."""
    known: list[Path] = []

    def render() -> Path:
        if not known:
            out = tmp_path_factory.mktemp("bagel_edit") / "out"
            command = ("new", "bagel_edit", "--pipeline", "BagelPipeline", "--vllm-omni", "0.30.0", "--task", "edit")
            scaffold_cli(*command, "--out", out).success()
            known.append(out)
        return known[0]

    return render
