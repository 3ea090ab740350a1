"""A small source of vllm-omni's shape, written by a test, imported and executed."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.port import Kept, Port, port_denoiser
from scaffold.upstream.source import FolderSource

MODELS = "vllm_omni/diffusion/models/small"
HEAD = """\
import torch
import torch.nn as nn
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
"""

PortText, Run = Callable[..., Port], Callable[[Port], Any]


@pytest.fixture
def port_text(tmp_path: Path) -> PortText:
    """Return a function that writes files below the folder of a model and ports ``Model`` of the first."""

    def port(
        text: str,
        also: dict[str, str] | None = None,
        keep: tuple[str, ...] = (),
        pipeline: str | None = None,
        settings: dict[str, object] | None = None,
    ) -> Port:
        for name, content in {"first.py": text, **(also or {})}.items():
            path = tmp_path / (name if name.startswith("vllm_omni/") else f"{MODELS}/{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        source = FolderSource(tmp_path, "9.9.9", "9.9.9")
        module = "vllm_omni.diffusion.models.small.first"
        kept = Kept(module, pipeline, "transformer") if pipeline is not None else None
        return port_denoiser(source, module, "Model", extra_methods=keep, kept=kept, settings=settings)

    return port


def line_of(text: str, part: str) -> int:
    """Return the number of the first line that holds ``part``."""
    return next(number for number, line in enumerate(text.splitlines(), start=1) if part in line)


def execute(port: Port, folder: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The module that a package would have, with a folder of sources in the place of an installed vllm-omni."""
    monkeypatch.setenv("FLOW_GRPO_UPSTREAM", str(folder))
    module = types.ModuleType("imported")
    text = port.text.replace("verl_omni.pipelines.flow_grpo_runtime", "flow_grpo_runtime")
    exec(compile(text, "imported.py", "exec"), module.__dict__)
    return module


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that executes the module of a port of ``port_text``."""
    pytest.importorskip("torch")
    return lambda port: execute(port, tmp_path, monkeypatch)
