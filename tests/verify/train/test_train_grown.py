"""The row of data of a training run: what the request that went through a tiny checkpoint brought, all of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("PIL")

from scaffold.verify.rollout.engine_side.recipe import Recipe
from scaffold.verify.rollout.engine_side.sample import FILE, write_sample
from scaffold.verify.train.grown import sample_row

TURN = {"action": "w-8"}


@pytest.mark.parametrize("structured", [False, True])
def test_files_and_values_are_in_the_row(tmp_path: Path, structured: bool) -> None:
    bench: Any = SimpleNamespace(
        recipe=Recipe(height=64, width=32, num_frames=9, brought={"sana_wm": TURN}),
        engine=SimpleNamespace(media=("image",)),
        prompts=SimpleNamespace(tokenizer=SimpleNamespace(name_or_path="/tokenizer")),
    )
    write_sample(bench, tmp_path)
    found = json.loads((tmp_path / FILE).read_text())
    assert (found["height"], found["width"], found["num_frames"]) == (64, 32, 9)
    row = sample_row({"media": {"structured": structured}}, found)
    prompt = row.pop("prompt")
    assert (prompt["caption"] if structured else prompt) == found["text"] != ""
    assert row.pop("sana_wm") == TURN
    assert Path(row.pop("image")).stat().st_size > 0
    assert not row
