"""The training module declares gradient checkpointing, but ``forward`` never goes through ``_checkpointed_call``.

``enable_gradient_checkpointing()`` succeeds and changes nothing: all activations are kept. The run that was planned
with checkpointing ends out of memory, or with a batch that is too small, and the configuration says that it is on.

    _supports_gradient_checkpointing = True
    …
    for layer in self.layers:
        x = layer(x)

Instead: ``x = self._checkpointed_call(layer, x)`` for every layer.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC105"
NAME = "unused-checkpointed-call"
SEVERITY = "error"
CHECKLIST = ("M5", "pitfall 10")
APPLIES = Applies(non_diffusers=True)
HELP = "call every layer through self._checkpointed_call(layer, …)"
FLAG = "_supports_gradient_checkpointing"


def check(package: Package) -> Hits:
    """Look for a checkpointed call in everything that ``forward`` gets to."""
    module = package.training_module
    flag = module.attribute(FLAG) if module is not None else None
    if module is None or flag is None or flag.value is None or flag.file.value(flag.value) is not True:
        return
    forward = module.method("forward")
    if forward is None or forward.is_abstract:
        return
    for function in package.forward_functions:
        for call in function.calls:
            name = attribute_name(call) or ""
            qualified = function.file.qualified(call.func) or ""
            if "checkpoint" in name.lower() or "checkpoint" in qualified:
                return
    yield Hit(flag.file, flag.value, f"{module.name}.forward() keeps all activations: it calls no layer checkpointed")


_CALL = "self._checkpointed_call(layer, context, latents, key_mask)"
_FLAG = "    _supports_gradient_checkpointing = True\n"
_MARKED = (_FLAG, _FLAG.replace("True", "«True»"))
FAILING = (
    Example("layers are called directly", {"model": [(_CALL, "layer(context, latents, key_mask)"), _MARKED]}),
    Example("layer.forward is called", {"model": [(_CALL, "layer.forward(context, latents, key_mask)"), _MARKED]}),
)
PASSING = (
    Example("through _checkpointed_call"),
    Example(
        "in a method of its own",
        {
            "model": [
                (_CALL, "self._run(layer, context, latents, key_mask)"),
                (
                    "    @classmethod\n    def from_pretrained(cls, model_path: str, torch_dtype",
                    "    def _run(self, layer, *inputs):\n        return self._checkpointed_call(layer, *inputs)\n\n"
                    "    @classmethod\n    def from_pretrained(cls, model_path: str, torch_dtype",
                ),
            ]
        },
    ),
    Example("left to diffusers", base="diffusers"),
)
