"""Writes the settings of a training run on a tiny checkpoint: sizes, tokenizer, and media files."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.engine_side.prompts import TEXTS

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest


RATE = 16_000  # samples a second
SAMPLES = 4_000  # a quarter of a second of speech features: one clip of a few frames


def media(kinds: Iterable[str], folder: Path, height: int, width: int) -> dict[str, Any]:
    """What a request holds under ``multi_modal_data``: an image as it is, of a sound the path of its file.

    Args:
        kinds: ``image``, ``audio``.
        folder: where a sound's file is, or is written.
        height: of an image, in pixels.
        width: of an image, in pixels.

    Raises:
        LookupError: a kind is another one.
    """
    import numpy as np

    found: dict[str, Any] = {}
    for kind in kinds:
        random = np.random.default_rng(5)
        if kind == "image":
            pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
            found[kind] = importlib.import_module("PIL.Image").fromarray(pixels)
        elif kind == "audio":
            place = folder / "request.wav"
            if not place.exists():
                beside = folder / f"request-{os.getpid()}.wav"
                sound = (0.1 * random.standard_normal(SAMPLES)).astype(np.float32)
                importlib.import_module("soundfile").write(beside, sound, RATE, subtype="FLOAT")
                beside.replace(place)
            found[kind] = str(place)
        else:
            raise LookupError(f"a request brings {kind}, and no small one can be made")
    return found


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
