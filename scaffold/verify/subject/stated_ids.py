"""Token ids that a package states in its source, beside the vocabulary of the tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from scaffold.verify.subject.source_words import stated_ids

BEYOND = "the tiny model's vocabulary has"


def ids_beyond(module: Any, package: Path) -> str | None:
    """Return why an id may exceed the tiny model's vocabulary, and what to do; None if the source has no ids.

    Args:
        module: the tiny model.
        package: folder of the package, whose code is read.
    """
    words = max((part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)), default=0)
    for file, largest in stated_ids(package):
        if 0 < words <= largest:
            return (
                f"{file.name} states ids up to {largest}, {BEYOND} {words}: give --checkpoint DIR with a small"
                " configuration that brings ids of its own, or whose vocabulary is as large"
            )
    return None
