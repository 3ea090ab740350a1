"""Layers of the engine's in a ``ModuleDict``.

The one of ``self.proj = nn.ModuleDict({"qkv": Layer(…)})`` is called as ``self.proj["qkv"](x)``. Such a layer goes by a
dotted name, ``proj.qkv``, as the parameters of the checkpoint do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from scaffold.port.names import dotted
from scaffold.source.syntax import walk_tree

_NAME = "ModuleDict"


def calls_in(value: ast.expr) -> Iterator[tuple[str, ast.Call]]:
    """Yield key and call of the entries of ``nn.ModuleDict({"key": Layer(…)})``."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func).rpartition(".")[2] != _NAME or len(value.args) != 1:
        return
    given = value.args[0]
    for key, entry in zip(given.keys, given.values, strict=True) if isinstance(given, ast.Dict) else ():
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(entry, ast.Call):
            yield key.value, entry


def entries_of(value: cst.BaseExpression) -> list[tuple[str, cst.BaseExpression]] | None:
    """Return keys and values of ``nn.ModuleDict({"key": …})``; None for anything else."""
    if not isinstance(value, cst.Call) or (dotted(value.func) or "").rpartition(".")[2] != _NAME:
        return None
    given = value.args[0].value if len(value.args) == 1 else None
    if not isinstance(given, cst.Dict):
        return None
    found = []
    for element in given.elements:
        if not isinstance(element, cst.DictElement) or not isinstance(element.key, cst.SimpleString):
            return None
        found.append((str(element.key.evaluated_value), element.value))
    return found


def entry_of(node: cst.BaseExpression) -> tuple[cst.Attribute, str] | None:
    """Return ``x.proj`` and the key of ``x.proj["key"]``; None for anything else."""
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1 or not isinstance(node.value, cst.Attribute):
        return None
    index = node.slice[0].slice
    if not isinstance(index, cst.Index) or not isinstance(index.value, cst.SimpleString):
        return None
    return node.value, str(index.value.evaluated_value)


def reads_of(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield layer and attribute of each ``x.proj["key"].attribute``."""
    for node in walk_tree(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Subscript):
            held, key = node.value.value, node.value.slice
            if isinstance(held, ast.Attribute) and isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield f"{held.attr}.{key.value}", node.attr
