"""Writes the settings of a training run on a tiny checkpoint: sizes, tokenizer, and media files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.engine_side.media import media
from scaffold.verify.rollout.engine_side.prompts import TEXTS

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

FILE = "sample.json"


def write_sample(bench: EngineUnderTest, folder: Path) -> None:
    """Write ``sample.json``: ``height``, ``width``, ``num_frames``, ``tokenizer`` (a folder), ``text``, ``files``,
    ``values``.

    ``files`` are paths by kind of what the request that went through brought, ``values`` what else it brought. What the
    stages before the pipeline hand on is one file, for all rows.
    """
    recipe, tokenizer = bench.recipe, bench.prompts.tokenizer
    if not tokenizer.name_or_path:  # no part of the checkpoint: the stages before the pipeline have it
        tokenizer.save_pretrained(tokens := folder / "tokenizer")
        tokenizer.name_or_path = str(tokens)
    found: dict[str, Any] = {
        "height": recipe.height,
        "width": recipe.width,
        "num_frames": recipe.num_frames,
        "tokenizer": tokenizer.name_or_path,
        "text": TEXTS[0],
        "files": {},
        "values": recipe.brought,
    }
    for kind, value in media(bench.engine.media, folder, recipe.height, recipe.width).items():
        place = value
        if kind == "image":
            place = folder / "sample.png"
            value.save(place)
        found["files"][kind] = str(place)
    if bench.engine.stage_inputs is not None:
        found["files"] |= bench.engine.stage_inputs.sampling(bench.prompts.chat(TEXTS[0]))
    (folder / FILE).write_text(json.dumps(found), encoding="utf-8")
