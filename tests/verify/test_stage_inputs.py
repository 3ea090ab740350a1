"""What the stages before a pipeline hand on, as level rollout makes it up of the shapes in ``scaffold.toml``."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from scaffold.verify.rollout.engine_side.stage_inputs import StageInputs

FORM = {
    "prompt": "",
    "extra": {
        "states": {"shape": ["prompt + 3", 4]},
        "words": {"shape": ["prompt", 2, "2 + 1"]},
        "ids": {"tokens": [7, "prompt", 100, 101]},
        "behind": {"length": "prompt"},
        "all": {"length": "prompt + 3"},
    },
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes the inputs of a prompt up."""
    written: dict[str, Any] = {}

    def write(path: str, inputs: dict[str, Any]) -> None:
        Path(path).touch()
        written[path] = inputs

    own = types.ModuleType("staged.stage_inputs")
    vars(own).update(STAGE_INPUTS="stage_inputs", write_stage_inputs=write)
    monkeypatch.setitem(sys.modules, "staged", types.ModuleType("staged"))
    monkeypatch.setitem(sys.modules, "staged.stage_inputs", own)
    inputs = StageInputs("staged", FORM, tmp_path, torch.bfloat16)
    return lambda ids: written[inputs.sampling(ids)["stage_inputs"]]


def test_sizes_and_ids_follow_the_prompt(made: Any) -> None:
    found = made([5, 6])
    assert found["prompt"] == ""
    assert found["extra"]["states"].shape == (5, 4)
    assert found["extra"]["words"].shape == (2, 2, 3)
    assert found["extra"]["states"].dtype == torch.bfloat16
    assert found["extra"]["ids"] == [7, 5, 6, 100, 101]
    assert (found["extra"]["behind"], found["extra"]["all"]) == (2, 5)


def test_each_prompt_has_its_own_and_keeps_it(made: Any) -> None:
    first = made([5, 6])["extra"]["states"]
    assert torch.equal(made([5, 6])["extra"]["states"], first)
    assert not torch.equal(made([6, 5])["extra"]["states"], first)
