"""Whether the code that a patch works around is still the code for which it was written."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scaffold.target.pin import text_of

ABSENT = ""  # the digest of what a release does not have


def digest(text: str, name: str) -> str | None:
    """Digest of a definition, comments and layout aside; of the whole file where ``name`` is empty.

    Args:
        text: source of a file.
        name: ``function``, ``Class`` or ``Class.method``.

    Returns:
        None where the file has no such definition.
    """
    node: ast.AST | None = ast.parse(text)
    for part in filter(None, name.split(".")):
        node = next(
            (
                inner
                for inner in getattr(node, "body", ())
                if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and inner.name == part
            ),
            None,
        )
    return None if node is None else hashlib.sha256(ast.dump(node).encode()).hexdigest()[:12]


def changed(places: Mapping[str, Sequence[str]], roots: Sequence[Path]) -> Iterator[str]:
    """One line for each place whose code is none of those a patch was written for.

    Args:
        places: ``PLACES`` of a patch.
        roots: folders that hold the libraries, the first that has a file counts.
    """
    for place, known in places.items():
        file, _, name = place.partition(":")
        text = next((text for root in roots if (text := text_of(root, file)) is not None), None)
        if text is None:
            yield f"{place}: there is no such file"
        elif (found := digest(text, name) or ABSENT) not in known:
            yield f"{place}: {found or 'it is gone'}"
