"""A rendered package for edits whose training module is composed of the shared blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def bagel_edit(rendered: Callable[..., Path]) -> Path:
    """Return the root of ``bagel_edit`` as the packaged manifest has it."""
    return rendered("bagel_edit", "--pipeline", "BagelPipeline", "--vllm-omni", "0.30.0", "--task", "edit")
