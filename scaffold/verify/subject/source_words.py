"""Words and numbers of a package's code: names of weight files, token ids."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from scaffold.files.reading import is_relative, read_text

SAFETENSORS = ".safetensors"
WEIGHTS = (SAFETENSORS, ".bin", ".pt", ".pth")  # all but the first are torch's own format
_MOST_WORDS = 10_000_000  # larger numbers are not ids
_WEIGHTS = re.compile(r"[\w./-]+\.(safetensors|bin|pth?)")


def weight_files(subject: Any) -> list[str]:
    """Return the weight files a package may read below a checkpoint's folder: as declared, else from its code.

    A word of the code that leads out of the folder, as the path of a release on somebody's disk does, names none.
    """
    if subject.table.weights:
        return [subject.table.weights]
    words = literals(subject.folder)
    named = [word for word in words if _WEIGHTS.fullmatch(word)] or ["model.safetensors"]
    folders = [f"{word}/" for word in literals(subject.folder, joined=True) if re.fullmatch(r"[\w-]+", word)]
    return [start + file for start in ("", *folders) for file in named if is_relative(start + file)]


def literals(folder: Path, *, joined: bool = False) -> list[str]:
    """Return the distinct strings in the package's code, in order; optionally only those joined to paths."""
    found: dict[str, None] = {}
    for file in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(read_text(file))
        except (OSError, SyntaxError, ValueError):
            continue
        nodes: list[ast.AST] = list(ast.walk(tree))
        if joined:
            calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
            sums = [node for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
            nodes = [part for call in calls if call.func.attr in ("join", "joinpath") for part in call.args]  # type: ignore[attr-defined]
            nodes += [part for both in sums for part in (both.left, both.right)]
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
                found.setdefault(node.value)
    return list(found)


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
