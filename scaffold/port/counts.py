"""Which parameters of a module's constructor say how many layers there are, so that a small one can be built."""

from __future__ import annotations

import ast
import re

from scaffold.source.syntax import lineage, walk_tree

_COUNT = re.compile(r"(num|n)_(\w+_)?layers|depth|\w+_depth")


def layer_counts(source: str, entry: str) -> tuple[str, ...]:
    """Return parameters that count layers; empty where the class cannot be built from defaults alone.

    Args:
        source: text of the ported module.
        entry: class of the denoiser in it.
    """
    classes = {node.name: node for node in walk_tree(ast.parse(source)) if isinstance(node, ast.ClassDef)}
    for node in lineage(classes, entry):
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                return _counts(method.args)
    return ()


def _counts(arguments: ast.arguments) -> tuple[str, ...]:
    positional = arguments.args[1:]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [*zip(positional, [*defaults, *arguments.defaults], strict=False)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    if any(default is None or "config" in argument.arg for argument, default in pairs):
        return ()
    return tuple(
        argument.arg
        for argument, default in pairs
        if _COUNT.fullmatch(argument.arg) and isinstance(default, ast.Constant) and type(default.value) is int
    )
