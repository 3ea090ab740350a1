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
from scaffold.verify.train.tiny_checkpoint import sample_row

TURN = {"action": "w-8"}


@pytest.mark.parametrize("structured", [False, True])
def test_files_and_values_are_in_the_row(tmp_path: Path, structured: bool) -> None:
    bench: Any = SimpleNamespace(
        recipe=Recipe(height=64, width=32, num_frames=9, brought={"sana_wm": TURN}),
        engine=SimpleNamespace(media=("image",), stage_inputs=None),
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


def test_behind_other_stages_a_row_names_what_they_made_and_the_tokenizer_gets_a_folder(tmp_path: Path) -> None:
    class Tokenizer:
        name_or_path = ""

        def save_pretrained(self, folder: Path) -> None:
            folder.mkdir()

    made = str(tmp_path / "made.safetensors")
    bench: Any = SimpleNamespace(
        recipe=Recipe(height=64, width=64),
        engine=SimpleNamespace(
            media=(), stage_inputs=SimpleNamespace(sampling=lambda ids: {"stage_inputs": made} if ids == [1, 2] else {})
        ),
        prompts=SimpleNamespace(tokenizer=Tokenizer(), chat=lambda text: [1, 2]),
    )
    write_sample(bench, tmp_path)
    found = json.loads((tmp_path / FILE).read_text())
    assert Path(found["tokenizer"]).is_dir()
    assert sample_row({}, found)["stage_inputs"] == made
