"""Agent loops that send, beside a prompt, what the row of the data names."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from PIL import Image

PLACE = "verl_omni.agent_loop.single_turn_agent_loop"


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, over a loop that returns what it would send."""

    class Loop:
        def __init__(self) -> None:
            self.server_manager = Server()

        async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
            return sampling_params, await self.server_manager.generate("request", **kwargs)

    class Server:
        async def generate(self, *args: Any, **kwargs: Any) -> Any:
            return args, kwargs

    stand_in = ModuleType(PLACE)
    vars(stand_in)["DiffusionSingleTurnAgentLoop"] = Loop
    monkeypatch.setitem(sys.modules, "verl_omni.agent_loop", ModuleType("verl_omni.agent_loop"))
    monkeypatch.setitem(sys.modules, PLACE, stand_in)
    monkeypatch.delitem(sys.modules, "flow_grpo_runtime.agent_loop", raising=False)
    return importlib.import_module("flow_grpo_runtime.agent_loop")


@pytest.fixture
def pictures(tmp_path: Path) -> list[str]:
    places = [str(tmp_path / name) for name in ("wide.png", "tall.png")]
    for place, size in zip(places, ((40, 20), (10, 30)), strict=True):
        Image.new("L", size).save(place)
    return places


def sent(loop: Any, inputs: Any, **params: Any) -> Any:
    return asyncio.run(loop.run(params, extra_info={"inputs": inputs}))


def test_a_row_brings_files_and_values(loops: Any, pictures: list[str]) -> None:
    class Loop(loops.InputsAgentLoop):  # type: ignore[misc, name-defined]
        taken, required = ("image", "video"), ("image",)
        values: ClassVar[Any] = {"camera": ("path", "speed")}

    inputs = {"image": pictures[0], "video": pictures[1], "camera": {"speed": 2}}
    params, (args, kwargs) = sent(Loop(), json.dumps(inputs), width=8)
    assert params == {"width": 8, "camera": {"speed": 2}}
    assert args == ("request",)
    assert kwargs["image_data"].mode == "RGB"
    assert kwargs["image_data"].size == (40, 20)
    assert kwargs["video_data"] == pictures[1]
    for lacking, message in (
        ({"camera": {"speed": 2}}, r"the row has no image, which the pipeline needs; it has \['camera'\]"),
        ({"image": pictures[0]}, "the row has no camera with path or speed"),
        ({"image": "/nowhere.png", "camera": {"speed": 2}}, "the row's image /nowhere.png is no file here"),
    ):
        with pytest.raises(ValueError, match=message):
            sent(Loop(), lacking)


def test_pictures_that_are_edited_have_the_size_of_the_request(loops: Any, pictures: list[str]) -> None:
    class Loop(loops.InputsAgentLoop):  # type: ignore[misc, name-defined]
        edits = True

    _, (_, kwargs) = sent(Loop(), {"image": pictures}, width=16, height=8)
    assert [picture.size for picture in kwargs["image_data"]] == [(16, 8)] * 2
    _, (_, kwargs) = sent(Loop(), {"image": pictures[1]})
    assert kwargs["image_data"].size == (10, 30)
    with pytest.raises(ValueError, match="the row has no image to edit"):
        sent(Loop(), {})


def test_a_row_names_the_file_of_the_stages_before(loops: Any, pictures: list[str]) -> None:
    loop = loops.StagedAgentLoop()
    params, _ = sent(loop, {"stage_inputs": pictures[0]}, width=8)
    assert params == {"width": 8, "stage_inputs": pictures[0]}
    with pytest.raises(ValueError, match="the row has no stage_inputs"):
        sent(loop, None)


def test_what_is_not_carried_is_refused(loops: Any) -> None:
    loop = type("Loop", (loops.RefusingAgentLoop,), {"refused": "audio does not travel"})()
    with pytest.raises(NotImplementedError, match="audio does not travel"):
        sent(loop, {})
