"""Values that are computed in float32 for a while: they go back to the dtype in which they came."""

from __future__ import annotations

import ast

from scaffold.source.syntax import is_docstring, walk_tree

_WIDE, _LITERAL = "torch.float32", "torch.bfloat16"


def restore_precision(text: str) -> str:
    """Return a port whose functions give an argument its own dtype back, where upstream names the engine's.

    ``x = turn(x.to(torch.float32)); x = x.to(torch.bfloat16)`` is that where the engine computes in bfloat16; a module
    that is trained or compared in another dtype would mix two.
    """
    edits: list[tuple[int, int, int, str]] = []  # line, bytes of it, what stands there instead
    added: list[tuple[int, int, str]] = []
    for function in walk_tree(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for argument in (*function.args.args, *function.args.kwonlyargs):
            name = argument.arg
            found = [node for node in walk_tree(function) if isinstance(node, ast.Call) and _casts(node, _WIDE)]
            widened = any(ast.unparse(node.func) == f"{name}.to" for node in found)
            literals = [literal for node in walk_tree(function) if (literal := _given_back(node, name)) is not None]
            if not widened or not literals:
                continue
            edits += [(n.lineno, n.col_offset, n.end_col_offset or n.col_offset, f"{name}_dtype") for n in literals]
            first = next(line for line in function.body if not is_docstring(line))
            added.append((first.lineno, first.col_offset, f"{name}_dtype = {name}.dtype"))
    lines = [line.encode() for line in text.splitlines()]
    for line, start, end, put in sorted(edits, reverse=True):
        lines[line - 1] = lines[line - 1][:start] + put.encode() + lines[line - 1][end:]
    for line, indent, put in sorted(added, reverse=True):
        lines.insert(line - 1, b" " * indent + put.encode())
    return b"\n".join(lines).decode() + "\n" if edits else text


def _casts(node: ast.Call, dtype: str) -> bool:
    return len(node.args) == 1 and not node.keywords and ast.unparse(node.args[0]) == dtype


def _given_back(node: ast.AST, name: str) -> ast.expr | None:
    """The dtype in ``name = ….to(torch.bfloat16)``, made of ``name`` itself."""
    if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) != name or not isinstance(node.value, ast.Call):
        return None
    call = node.value
    own = any(isinstance(inner, ast.Name) and inner.id == name for inner in walk_tree(call))
    narrows = isinstance(call.func, ast.Attribute) and call.func.attr == "to" and _casts(call, _LITERAL)
    return call.args[0] if own and narrows else None
