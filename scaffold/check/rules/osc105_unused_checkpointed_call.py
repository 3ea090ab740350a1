"""The training module declares gradient checkpointing, but ``forward`` never goes through ``_checkpointed_call``.

``enable_gradient_checkpointing()`` succeeds and changes nothing: all activations are kept. The run that was planned
with checkpointing ends out of memory, or with a batch that is too small, and the configuration says that it is on.
That every layer is recomputed, `verify` measures (``gradient-checkpointing``).

    _supports_gradient_checkpointing = True
    …
    for layer in self.layers:
        x = layer(x)

Instead: ``x = self._checkpointed_call(layer, x)`` for every layer; of an imported denoiser the names of the layers'
classes, ``_checkpointed_layers = ("Block",)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC105"
NAME = "unused-checkpointed-call"
SEVERITY = "error"
CHECKLIST = ("M5", "pitfall 10")
APPLIES = Applies(non_diffusers=True)
HELP = "call every layer through self._checkpointed_call(layer, …)"
LAYERS = "_checkpointed_layers"
FLAG = "_supports_gradient_checkpointing"


def check(package: Package) -> Hits:
    """Look for a checkpointed call in everything that ``forward`` reaches."""
    module = package.training_module
    flag = module.attribute(FLAG) if module is not None else None
    forward = module.method("forward") if module is not None else None
    if module is None or flag is None or flag.value is None or forward is None or forward.is_abstract:
        return
    named = module.attribute(LAYERS)
    if named is not None and named.value is not None and named.file.value(named.value):
        return
    if flag.file.value(flag.value) is not True:
        return
    for function in package.forward_functions:
        index = function.file.index
        names = {node.attr for node in index.nodes(ast.Attribute, function.node)}
        names |= {node.id for node in index.nodes(ast.Name, function.node)}
        if any(name.endswith(("_checkpointed_call", "checkpoint")) for name in names):
            return
    yield Hit(flag.file, flag.value, f"{module.name}.forward() keeps all activations: it calls no layer checkpointed")


FAILING = (
    Example(
        "layers are called directly",
        model=[
            ("self._checkpointed_call(layer, context", "layer(context"),
            ("_supports_gradient_checkpointing = True", "_supports_gradient_checkpointing = «True»"),
        ],
    ),
)
PASSING = (
    Example(
        "by the names of layers",
        model=[
            ("self._checkpointed_call(layer, context", "layer(context"),
            (
                "_supports_gradient_checkpointing = True",
                '_supports_gradient_checkpointing = True\n    _checkpointed_layers = ("Layer",)',
            ),
        ],
    ),
    Example(
        "through torch",
        model=("self._checkpointed_call(layer", "torch.utils.checkpoint.checkpoint(layer"),
        also="OSC106",
    ),
)
