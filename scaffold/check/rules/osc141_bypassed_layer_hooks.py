"""A layer's, or the model's, ``forward`` is called by itself, past what is wrapped around the module.

Sharding gathers the weights of a wrapped layer in hooks that run when the layer is called. ``layer.forward`` runs none of
them: its weights stay in pieces, and the run stops in the first product or, worse, reads what an earlier step left behind.
On one device everything works.

    context, latents = self._checkpointed_call(layer.forward, context, latents, mask)

Instead: hand on and call the module itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.layer_lists import is_element, lists_of_layers
from scaffold.check.model.package import Package
from scaffold.check.model.sides import side_of
from scaffold.check.model.submodules import Submodule
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC141"
NAME = "bypassed-layer-hooks"
SEVERITY = "error"
CHECKLIST = ("M5", "T5", "pitfall 35")
APPLIES = Applies()
HELP = "call the module itself: layer(…), self._checkpointed_call(layer, …), module(**inputs)"


def check(package: Package) -> Hits:
    """Look for ``forward`` of a sharded layer in the forward code, and of the module in the training adapter."""
    module = package.training_module
    lists = lists_of_layers(package)
    for function in package.forward_functions if module is not None and lists else ():
        if (
            function.file in package.files
            and function.cls is not None
            and function.cls in (module.mro if module else ())
        ):
            for node in _named(function):
                if _is_layers(function, node.value, lists):
                    yield Hit(function.file, node, "the layer's own forward() is used: its hooks do not run")
    for function in side_of(package, "training").functions:
        if function.file not in package.files or "module" not in function.parameters:
            continue
        for node in _named(function):
            if isinstance(node.value, ast.Name) and _is_parameter(function, node.value, "module"):
                yield Hit(function.file, node, "the module's own forward() is used: its hooks do not run")


def _named(function: FunctionModel) -> Iterator[ast.Attribute]:
    """Yield ``x.forward`` wherever it is called, handed on or kept under another name."""
    for node in function.file.index.nodes(ast.Attribute, function.node):
        if node.attr == "forward" and isinstance(node.ctx, ast.Load) and not _only_looked_at(function, node):
            yield node


def _only_looked_at(function: FunctionModel, node: ast.Attribute) -> bool:
    """Whether the method is asked about, ``inspect.signature(module.forward)``, and not called."""
    outer = function.file.index.parent(node)
    if isinstance(outer, ast.Call) and outer.func is not node:
        name = function.file.qualified(outer.func) or ""
        return name.startswith("inspect.") or name in ("hasattr", "callable", "getattr", "id", "isinstance")
    return isinstance(outer, (ast.Attribute, ast.Compare))


def _is_layers(function: FunctionModel, owner: ast.expr, lists: dict[str, Submodule]) -> bool:
    """Whether ``forward`` of something is a layer's: of the layer, of ``type(layer)``, of its class."""
    if is_element(function, owner, lists):
        return True
    if isinstance(owner, ast.Call) and owner.args and function.file.qualified(owner.func) == "type":
        return is_element(function, owner.args[0], lists)
    kinds = {part.cls for part in lists.values() if part.cls is not None}
    return function.file.project.class_of(function.file, owner) in kinds


def _is_parameter(function: FunctionModel, name: ast.Name, parameter: str) -> bool:
    bindings = function.file.scopes.lookup(name.id, name)
    return name.id == parameter and [binding.kind for binding in bindings] == ["parameter"]


_LOOP = "        for layer in self.layers:\n"
_CALL = "self._checkpointed_call(layer, context, latents, key_mask)"
_MODULE = "velocity = module(**model_inputs)[0].float()"
FAILING = (
    Example("handed on", {"model": [(_CALL, _CALL.replace("(layer,", "(«layer.forward»,"))]}),
    Example(
        "in a lambda",
        {
            "model": [
                (
                    _CALL,
                    "self._checkpointed_call(lambda *x, layer=layer: «layer.forward»(*x), context, latents, key_mask)",
                )
            ]
        },
    ),
    Example(
        "kept under a name",
        {
            "model": [
                (
                    "            context, latents = " + _CALL,
                    "            run = «layer.forward»\n            context, latents = "
                    + _CALL.replace("(layer,", "(run,"),
                )
            ]
        },
    ),
    Example(
        "by number",
        {
            "model": [
                (_LOOP, "        for at in range(len(self.layers)):\n"),
                (_CALL, _CALL.replace("(layer,", "(«self.layers[at].forward»,")),
            ]
        },
    ),
    Example(
        "by the class",
        {
            "model": [
                (
                    _CALL,
                    "self._checkpointed_call(lambda *x, one=layer: «ToyLayer.forward»(one, *x), context, latents, key_mask)",
                )
            ]
        },
    ),
    Example(
        "of the module, by the adapter", {"training": [(_MODULE, _MODULE.replace("module(", "«module.forward»("))]}
    ),
)
PASSING = (
    Example("layers are called"),
    Example(
        "a part of a layer, which nothing wraps",
        {
            "model": [
                (
                    "context_update, latents_update = self.self_attn(",
                    "context_update, latents_update = self.self_attn.forward(",
                ),
            ]
        },
    ),
    Example(
        "the parent's forward",
        {
            "model": [
                (
                    "class ToyForTraining(NonDiffusersModelBase):\n",
                    "class Embedder(TimestepEmbedder):\n    def forward(self, timestep: Tensor) -> Tensor:\n"
                    "        return super().forward(timestep)\n\n\nclass ToyForTraining(NonDiffusersModelBase):\n",
                ),
                ("self.time_embedder = TimestepEmbedder(", "self.time_embedder = Embedder("),
            ]
        },
    ),
    Example("left to diffusers", base="diffusers"),
)
