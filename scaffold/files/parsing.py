"""Parses untrusted Python into a syntax tree, and knows what `new` left to be written in one."""

from __future__ import annotations

import ast
import re
from itertools import islice
from typing import NamedTuple

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


_MESSAGE = re.compile(r"(?s)(?P<what>.+): port (?P<place>\S+\.py:\d+) of vllm-omni \S+")


class Unwritten(NamedTuple):
    """One place.

    Attributes:
        what: what is to be written.
        place: file and line of the pipeline that do it.
    """

    what: str
    place: str


def unwritten(node: ast.Raise) -> Unwritten | None:
    """Return what is to be written where an error is raised; None where it is an error like any other."""
    if not isinstance(node.exc, ast.Call) or not node.exc.args or ast.unparse(node.exc.func) != "NotImplementedError":
        return None
    text = node.exc.args[0]
    found = _MESSAGE.fullmatch(text.value) if isinstance(text, ast.Constant) and isinstance(text.value, str) else None
    return Unwritten(found["what"], found["place"]) if found is not None else None
