"""Python of others as a syntax tree, without the one kind of literal that nothing in Python can write back."""

from __future__ import annotations

import ast
import re

from scaffold.bounded import BITS

# Digits of other bases have no limit, and no decimal form beyond a few thousand.
_LONG = re.compile(r"0[xXoObB][0-9a-fA-F_]{250}")


def parse(text: str, filename: str = "<source>") -> ast.Module:
    """Return the tree of a module.

    Raises:
        SyntaxError: no Python, or a whole number in it is too large to work with; ValueError, RecursionError and
            MemoryError as ``ast.parse`` does.
    """
    tree = ast.parse(text, filename=filename)
    if _LONG.search(text):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value.bit_length() > BITS:
                place = (filename, node.lineno, node.col_offset + 1, None)
                raise SyntaxError("a whole number is too large to work with", place)
    return tree
