"""What is assigned to which name, unpacked where both sides are written out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator


def assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of every plain assignment among nodes; ``self.x = …`` as ``.x``."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _targets(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            if node.value is not None:
                yield from _targets(node.target, node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            yield from _targets(node.target, node.iter)


def _targets(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield f".{target.attr}", value
    elif isinstance(target, ast.Subscript):
        yield from _targets(target.value, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        plain = len(values) == len(target.elts)
        for at, item in enumerate(target.elts):
            inner = item.value if isinstance(item, ast.Starred) else item
            yield from _targets(inner, values[at] if plain else value)
