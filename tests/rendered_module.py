"""A rendered file as a module; libraries that it imports and only a training has are stood in for."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import RUNTIME, runtime_root

_LOOP = "verl_omni.agent_loop.single_turn_agent_loop"
_SHARED = f"verl_omni.pipelines.{RUNTIME}"


class Loop:
    """VeRL-Omni's own loop: sends a request through its server manager."""

    def __init__(self, server: Any) -> None:
        self.server_manager = server

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        return await self.server_manager.generate(prompt_ids=[1, 2], image_data=None, sampling_params=sampling_params)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let libraries that only a training has be there, and what rendered packages share."""
    for name in ("datasets", "verl_omni", "verl_omni.agent_loop", _LOOP, "verl_omni.pipelines", _SHARED):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name in ("agent_loop", "stage_inputs"):
        monkeypatch.delitem(sys.modules, f"{_SHARED}.{name}", raising=False)
    sys.modules[_SHARED].__path__ = [str(runtime_root())]
    monkeypatch.setattr(sys.modules[_LOOP], "DiffusionSingleTurnAgentLoop", Loop, raising=False)


def load(place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a data script or an agent loop from its file."""
    stand_in(monkeypatch)
    made = importlib.util.spec_from_file_location(place.stem, place)
    assert made is not None
    assert made.loader is not None
    loaded = importlib.util.module_from_spec(made)
    made.loader.exec_module(loaded)
    return loaded
