"""Token ids that a package states in its source, beside the vocabulary of the tiny model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from scaffold.reading import read_text

_MOST_WORDS = 10_000_000  # larger numbers are no ids
BEYOND = "the tiny model's vocabulary has"


def ids_beyond(module: Any, package: Path) -> str | None:
    """Why an id may lie beyond the tiny model's vocabulary, and what to do; None where the source states none.

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


def stated_ids(folder: Path) -> Iterator[tuple[Path, int]]:
    """Each list or tuple of whole numbers in the package's code that may be token ids: its file and the largest."""
    for file in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(read_text(file))
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
            found = [item.value for item in items if isinstance(item, ast.Constant) and type(item.value) is int]
            if found and max(found) < _MOST_WORDS:
                yield file, max(found)
