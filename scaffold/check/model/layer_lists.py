"""The lists of layers that the training module keeps, and what runs over them."""

from __future__ import annotations

import ast

from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.submodules import Submodule

_THROUGH = ("enumerate", "reversed", "list", "tuple", "zip", "iter")


def lists_of_layers(package: Package) -> dict[str, Submodule]:
    """Return the attributes of the training module that hold layers one by one, with what they hold."""
    module = package.training_module
    parts = [part for part in package.module_tree if part.repeated and not part.of_sequence] if module else []
    # A list of plain operations, an activation and a projection, holds no layers.
    parts = [part for part in parts if not (part.qualified or "").startswith("torch.nn.") or _is_layer(part)]
    return {part.name: part for part in parts if module is not None and part.owner in module.mro}


def _is_layer(part: Submodule) -> bool:
    return (part.qualified or "").endswith("Layer")


def is_element(function: FunctionModel, value: ast.expr, lists: dict[str, Submodule], hops: int = 5) -> bool:
    """Whether an expression certainly is a layer of one of the lists: ``self.layers[i]``, or what a loop runs over."""
    if isinstance(value, ast.Subscript):
        return not isinstance(value.slice, ast.Slice) and _is_list(function, value.value, lists)
    if not isinstance(value, ast.Name) or not hops:
        return False
    index = function.file.index
    bindings = function.file.scopes.lookup(value.id, value)
    for binding in bindings:
        loop: ast.AST | None = index.parent(binding.node)
        numbered = isinstance(loop, ast.Tuple)
        if numbered and loop is not None:
            loop = index.parent(loop)
        if binding.kind == "parameter":
            default = _default(function, binding.node)
            if default is None or not is_element(function, default, lists, hops - 1):
                return False
        elif isinstance(loop, (ast.For, ast.comprehension)):
            if not _runs_over(function, loop.iter, lists):
                return False
        elif binding.value is None or not is_element(function, binding.value, lists, hops - 1):
            return False
    return bool(bindings)


def _default(function: FunctionModel, parameter: ast.AST) -> ast.expr | None:
    """Return the default of a parameter of a lambda: ``lambda x, layer=layer: …``."""
    arguments = function.file.index.parent(parameter)
    if not isinstance(arguments, ast.arguments) or arguments is function.node.args:
        return None
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(reversed(named), reversed(arguments.defaults), strict=False))
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    return next((default for argument, default in pairs if argument is parameter), None)


def _runs_over(function: FunctionModel, value: ast.expr, lists: dict[str, Submodule]) -> bool:
    if isinstance(value, ast.Call) and function.file.qualified(value.func) in _THROUGH:
        return any(_is_list(function, part, lists) for part in value.args)
    return _is_list(function, value, lists)


def _is_list(function: FunctionModel, value: ast.expr, lists: dict[str, Submodule]) -> bool:
    while isinstance(value, ast.Subscript):
        value = value.value
    own = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == function.bound
    return own and isinstance(value, ast.Attribute) and value.attr in lists
