"""The tokenizer of a tiny checkpoint is loaded as it was saved, as at level ``rollout``, whatever class asks for it.

Classes of released tokenizers build rules of their own around a vocabulary: CLIP's would encode another text than the
agent loop, which asks for no class, decodes.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text

PLACES: dict[str, tuple[str, ...]] = {}
MODULE = "transformers.tokenization_utils_base"
PLAIN = ("TokenizersBackend", "PreTrainedTokenizerFast")  # names of the class that adds no rule, by version


def hooks() -> dict[str, Callable[[Any], None]]:
    """Change how tokenizers below the run's checkpoint are loaded."""
    checkpoint = Path(os.environ.get("MODEL_PATH", ""))
    return {MODULE: partial(_load_plain, checkpoint)} if checkpoint.is_absolute() else {}


def _load_plain(checkpoint: Path, module: Any) -> None:
    owner = module.PreTrainedTokenizerBase
    original = owner.from_pretrained.__func__

    def from_pretrained(cls: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        folder = Path(str(path), kwargs.get("subfolder") or "")
        if folder.is_relative_to(checkpoint) and _saved_class(folder) in PLAIN:
            cls = importlib.import_module("transformers").PreTrainedTokenizerFast
        return original(cls, path, *args, **kwargs)

    owner.from_pretrained = classmethod(from_pretrained)


def _saved_class(folder: Path) -> str | None:
    file = folder / "tokenizer_config.json"
    return json.loads(read_text(file)).get("tokenizer_class") if file.is_file() else None
