"""Tables that a pipeline computes from its denoiser alone and gives to every call: training computes them, too."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence

from scaffold.port.names import Defined, Scope
from scaffold.port.result import Kept
from scaffold.source.modules import ModuleGraph, ModuleInfo
from scaffold.source.syntax import is_own, walk_tree

NAME = "constant_tables"


def constant_tables(graph: ModuleGraph, kept: Kept, denoiser: Defined, inputs: Sequence[str]) -> str | None:
    """Return the text of a function of the denoiser that returns the tables by name; None where there are none.

    A table is what a function or a static method of the denoiser's own file makes of constants and of attributes of
    the denoiser, under the name of an argument. The function sees the names of the pipeline's module.

    Args:
        graph: modules of the source.
        kept: where the pipeline keeps the denoiser.
        denoiser: its class.
        inputs: names of the arguments that it is called with.
    """
    info = graph.find(kept.module)
    node = info.definitions.get(kept.name) if info is not None else None
    if info is None or not isinstance(node, ast.ClassDef):
        return None
    made = _tables(graph, info, node, kept.attribute, denoiser)
    found = {name: text for name, text in made if name in inputs}
    if not found:
        return None
    entries = ", ".join(f"{name!r}: {text}" for name, text in found.items())
    return f"def {NAME}(denoiser):\n    return {{{entries}}}\n"


def _tables(
    graph: ModuleGraph, info: ModuleInfo, pipeline: ast.ClassDef, attribute: str, denoiser: Defined
) -> Iterator[tuple[str, str]]:
    for node in walk_tree(pipeline):
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        call = node.value
        if not isinstance(call, ast.Call) or not _is_own(Scope(graph, info), call.func, denoiser):
            continue
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        held = [_is_of(value, attribute) for value in given]
        named = all(keyword.arg for keyword in call.keywords)
        if named and any(held) and all(h or isinstance(v, ast.Constant) for h, v in zip(held, given, strict=True)):
            yield node.targets[0].id, ast.unparse(_Denoiser(attribute).visit(copy.deepcopy(call)))


def _is_own(scope: Scope, function: ast.expr, denoiser: Defined) -> bool:
    """Whether a function, or a class whose method is meant, stands in the denoiser's file."""
    root = function.value if isinstance(function, ast.Attribute) else function
    origin = scope.origin(root.id) if isinstance(root, ast.Name) else None
    return isinstance(origin, Defined) and origin.module == denoiser.module


def _is_of(value: ast.expr, attribute: str) -> bool:
    """Whether a value is read from the denoiser: ``self.<attribute>.…``."""
    while isinstance(value, ast.Attribute):
        if value.attr == attribute and is_own(value):
            return True
        value = value.value
    return False


class _Denoiser(ast.NodeTransformer):
    """Puts the function's parameter in place of ``self.<attribute>``."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr == self.attribute and is_own(node):
            return ast.Name("denoiser", ast.Load())
        return self.generic_visit(node)
