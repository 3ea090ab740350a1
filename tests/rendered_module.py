"""A rendered file as a module; libraries that it imports and only a training has are stood in for."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

_LOOP = "verl_omni.agent_loop.single_turn_agent_loop"


class Loop:
    """VeRL-Omni's own loop: sends a request through its server manager."""

    def __init__(self, server: Any) -> None:
        self.server_manager = server

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        return await self.server_manager.generate(prompt_ids=[1, 2], image_data=None, sampling_params=sampling_params)


def load(place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a data script or an agent loop from its file."""
    for name in ("datasets", "verl_omni", "verl_omni.agent_loop", _LOOP):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules[_LOOP], "DiffusionSingleTurnAgentLoop", Loop, raising=False)
    made = importlib.util.spec_from_file_location(place.stem, place)
    assert made is not None
    assert made.loader is not None
    loaded = importlib.util.module_from_spec(made)
    made.loader.exec_module(loaded)
    return loaded
