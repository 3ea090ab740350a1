"""The pipeline's scheduler class as a module of the package, pruned to its schedule."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from scaffold.source.syntax import is_docstring, walk_tree

if TYPE_CHECKING:
    from scaffold.upstream import UpstreamSource

# Libraries the trainer always has. Other imports of a scheduler class serve rarely used variants.
PRESENT = frozenset({"numpy", "torch", "diffusers"})


def port_scheduler(source: UpstreamSource, module: str, name: str) -> str:
    """Return a scheduler class of the source as a module of its own, pruned to what ``set_timesteps`` uses.

    Raises:
        ScaffoldError: there is no such class.
    """
    from scaffold.port import port_denoiser

    return late_imports(port_denoiser(source, module, name, extra_methods=("set_timesteps",)).source)


def late_imports(text: str) -> str:
    """Move imports of optional libraries into the functions that use them."""
    tree = ast.parse(text)
    lines = text.splitlines()
    added: dict[int, list[str]] = {}
    for node in tree.body:
        if not isinstance(node, ast.Import) or len(node.names) != 1 or node.names[0].asname:
            continue
        name = node.names[0].name
        if name.partition(".")[0] in PRESENT or name.partition(".")[0] in sys.stdlib_module_names:
            continue
        lines[node.lineno - 1] = ""
        for function in walk_tree(tree):
            used = _modules(function, name) if isinstance(function, ast.FunctionDef) else []
            if isinstance(function, ast.FunctionDef) and used:
                first = function.body[0]
                line = (first.end_lineno or first.lineno) if is_docstring(first) else first.lineno - 1
                indent = " " * first.col_offset
                added.setdefault(line, []).extend(f"{indent}import {module}" for module in used)
    found: list[str] = []
    for number, text_line in enumerate(lines, 1):
        found += [text_line, *added.get(number, [])]
    return "\n".join(found).rstrip() + "\n"


def _modules(function: ast.FunctionDef, library: str) -> list[str]:
    """Return the modules of a library that a function uses: ``library.part`` for a call of ``library.part.name``."""
    modules = {
        f"{library}.{node.value.attr}"
        for node in walk_tree(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id == library
    }
    named = any(isinstance(node, ast.Name) and node.id == library for node in walk_tree(function))
    return sorted(modules) or ([library] if named else [])
