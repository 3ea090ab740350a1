"""Parses untrusted Python into a syntax tree, refusing integer literals that Python cannot print."""

from __future__ import annotations

import ast
import re
from itertools import islice

from scaffold.limits.bounded import BITS

MOST_PARTS = 100_000
"""Most tokens of one file: three times vllm-omni's largest. A syntax tree takes up to 1 KB per token."""
_PART = re.compile(r"\w+|[^\w\s]|\n")
# Non-decimal literals have no size limit, but beyond a few thousand digits no decimal form.
_LONG = re.compile(r"0[xXoObB][0-9a-fA-F_]{250}")


class TooManyPartsError(SyntaxError):
    """A file whose tree would fill the memory."""


def parse(text: str, filename: str = "<source>") -> ast.Module:
    """Return the tree of a module.

    Raises:
        SyntaxError: no Python, more of it than fits into memory as a tree, or a whole number in it is too large to work
            with; ValueError, RecursionError and MemoryError as ``ast.parse`` does.
    """
    if len(text) > MOST_PARTS and sum(1 for _ in islice(_PART.finditer(text), MOST_PARTS + 1)) > MOST_PARTS:
        raise TooManyPartsError(
            f"more than {MOST_PARTS:,} words and signs are too many for one file", (filename, 1, 1, None)
        )
    tree = ast.parse(text, filename=filename)
    if _LONG.search(text):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value.bit_length() > BITS:
                place = (filename, node.lineno, node.col_offset + 1, None)
                raise SyntaxError("a whole number is too large to work with", place)
    return tree
