"""Keys of the extra arguments that the source asks for where the execution followed no way to them."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.source.syntax import walk_tree

EXTRA = "extra_args"


def asked_keys(program: Program) -> dict[str, Evidence]:
    """Constant keys that methods of the class ask ``extra_args`` of a request for, in the order of the source."""
    found: dict[str, Evidence] = {}
    for owner in program.cls.mro:
        for node in walk_tree(owner.node):
            holder, key = None, None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                holder, key = node.func.value, node.args[0] if node.args else None
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                holder, key = node.value, node.slice
            named = isinstance(holder, ast.Attribute) and holder.attr == EXTRA
            if named and isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.setdefault(key.value, Evidence(owner.module.file, key.lineno))
    return found
