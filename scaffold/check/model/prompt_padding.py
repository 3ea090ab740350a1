"""Token ids of prompts that a data script fills up to one length."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile

_PADDING = ("pad_token_id", "pad_id")
# Words of a package that can tell padding in its ids from text.
_KNOWING = (b"pad_token", b"pad_id", b'attention_mask"]', b"attention_mask']")


def filled_up(package: Package, file: PythonFile, function: FunctionModel) -> Iterator[ast.BinOp]:
    """Yield the pad tokens that are put behind a prompt's own, where nothing in the package knows them again."""
    if any(word in source.data for source in package.files for word in _KNOWING) or b"mask" in file.data:
        return
    for node in function.nodes(ast.BinOp):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        for part in (node.left, node.right):
            if not isinstance(part, ast.List) or len(part.elts) != 1:
                continue
            item = part.elts[0]
            name = item.attr if isinstance(item, ast.Attribute) else item.id if isinstance(item, ast.Name) else ""
            if name in _PADDING:
                yield node
