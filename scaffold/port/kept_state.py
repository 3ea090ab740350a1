"""What the classes of a port keep between calls: attributes that a method assigns, and their first values."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from scaffold.source.syntax import is_own, walk_tree

_STARTS = ("__init__", "load_weights", "__setattr__")


@dataclass(frozen=True)
class KeptState:
    """An attribute that a call leaves behind.

    Attributes:
        owner: the class.
        name: the attribute.
        first: text of the constant that the constructor gives it; None where it gives no constant.
    """

    owner: str
    name: str
    first: str | None


def kept_state(source: str, classes: Iterable[str]) -> tuple[KeptState, ...]:
    """Return the attributes of ``self`` that methods of these classes assign, their constructors left out.

    Args:
        source: text of the module.
        classes: names of the classes to look at.
    """
    wanted = set(classes)
    found: list[KeptState] = []
    for owner in ast.parse(source).body:
        if not isinstance(owner, ast.ClassDef) or owner.name not in wanted:
            continue
        methods = [node for node in owner.body if isinstance(node, ast.FunctionDef)]
        first = dict(_assigned(method for method in methods if method.name == "__init__"))
        kept = dict(_assigned(method for method in methods if method.name not in _STARTS))
        for name in kept:
            value = first.get(name)
            found.append(KeptState(owner.name, name, ast.unparse(value) if isinstance(value, ast.Constant) else None))
    return tuple(found)


def _assigned(methods: Iterable[ast.FunctionDef]) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield attributes of ``self`` that methods assign, each with its value where that stands alone."""
    for method in methods:
        for node in walk_tree(method):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from _of_self([target], node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from _of_self([node.target], node.value)
            elif isinstance(node, ast.AugAssign):
                yield from _of_self([node.target], None)


def _of_self(targets: Sequence[ast.expr], value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            for index, inner in enumerate(target.elts):
                yield from _of_self([inner], parts[index] if parts else None)
            continue
        while isinstance(target, ast.Subscript):
            target, value = target.value, None
        if is_own(target):
            yield target.attr, value
