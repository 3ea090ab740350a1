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

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.layer_lists import lists_of_layers
from scaffold.check.model.modes import in_training, taken
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.model.released_sizes import holds
from scaffold.check.model.streams import self_call
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
    yield from _bypassed(package, module)
    own = module.method("_checkpointed_call")
    if own is not None and own.file in package.files and not _checkpoints(own, module):
        yield Hit(
            own.file, own.node, f"{own.cls.name if own.cls else module.name}._checkpointed_call() only calls the layer"
        )
        return
    for function in package.forward_functions:
        for call in function.calls:
            name = attribute_name(call) or ""
            qualified = function.file.qualified(call.func) or ""
            if "checkpoint" in name.lower() or "checkpoint" in qualified:
                return
        # `partial(self._checkpointed_call)`, or another name for it.
        named = function.file.index.nodes(ast.Attribute, function.node)
        if any(_names_it(node) for node in named):
            return
    yield Hit(flag.file, flag.value, f"{module.name}.forward() keeps all activations: it calls no layer checkpointed")


def _names_it(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "_checkpointed_call"


def _checkpoints(own: FunctionModel, module: ClassModel) -> bool:
    """Whether a method of that name hands on to something that checkpoints."""
    for function in reachable(own, module):
        for call in function.calls:
            name = function.file.qualified(call.func) or ""
            if "checkpoint" in f"{name} {attribute_name(call) or ''}".lower():
                return True
    return False


def _bypassed(package: Package, module: ClassModel) -> Hits:
    """Look for layers that are called by themselves beside others that are checkpointed, or in their place."""
    lists = set(lists_of_layers(package))
    for function in package.forward_functions:
        if function.file not in package.files or function.cls not in module.mro:
            continue
        index = function.file.index
        saved = [call for call in function.calls if "checkpoint" in (attribute_name(call) or "").lower()]
        for call in saved:
            first = call.args[0] if call.args else None
            if isinstance(first, ast.Name) and _is_tensor(function, first):
                yield Hit(
                    function.file, first, "the first argument is no layer; write self._checkpointed_call(layer, …)"
                )
        for call in function.calls if saved else ():
            target = call.func
            one = isinstance(target, ast.Subscript) and _is_list(function, target.value, lists)
            if not one and not (isinstance(target, ast.Name) and _runs_over(function, target, lists)):
                continue
            late = _late(function, call, saved)
            if late is not None:
                text = f"{late!r} is looked up when the layer runs again, in backward: by then it is the last one"
                help = f"bind it: self._checkpointed_call({late}, …), or give the function a parameter {late}={late}"
                yield Hit(function.file, call, text, help)
                continue
            choice = next((o for o in index.ancestors(call) if isinstance(o, (ast.If, ast.IfExp))), None)
            if choice is None or not any(index.contains(choice, other) for other in saved):
                yield Hit(function.file, call, "this layer keeps all its activations, others are checkpointed")
            elif any(index.contains(part, call) for part in taken(choice, in_training(choice.test))):
                yield Hit(function.file, call, "layers are checkpointed outside of training alone")
            elif any(index.contains(part, call) for part in taken(choice, holds(package, function, choice.test))):
                yield Hit(function.file, call, "with the released sizes no layer is checkpointed")


def _late(function: FunctionModel, call: ast.Call, saved: list[ast.Call]) -> str | None:
    """Return the loop's variable that a function made in the loop, and checkpointed, calls as the layer."""
    index = function.file.index
    target = call.func
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.slice if isinstance(target, ast.Subscript) else target.value
    if not isinstance(target, ast.Name):
        return None
    for outer in index.ancestors(call):
        if outer is function.node:
            return None
        if isinstance(outer, (ast.Lambda, ast.FunctionDef)):
            loop = next((o for o in index.ancestors(outer) if isinstance(o, ast.For)), None)
            bound = function.file.scopes.lookup(target.id, call)
            of_loop = loop is not None and any(index.contains(loop.target, binding.node) for binding in bound)
            name = outer.name if isinstance(outer, ast.FunctionDef) else ""
            handed = [value for other in saved for value in other.args]
            named = {value.id for value in handed if isinstance(value, ast.Name)}
            # A partial of it, or another name, is handed on as well.
            return target.id if of_loop and (outer in handed or (name and name in named)) else None
    return None


def _is_list(function: FunctionModel, value: ast.expr, lists: set[str]) -> bool:
    if isinstance(value, ast.Subscript):
        value = value.value
    own = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == function.bound
    return own and isinstance(value, ast.Attribute) and value.attr in lists


def _runs_over(function: FunctionModel, name: ast.Name, lists: set[str]) -> bool:
    for binding in function.file.scopes.lookup(name.id, name):
        loop = function.file.index.parent(binding.node)
        if isinstance(loop, ast.For) and _is_list(function, loop.iter, lists):
            return True
    return False


def _is_tensor(function: FunctionModel, name: ast.Name) -> bool:
    """Whether a name certainly is what one of the sub-modules computed."""
    values = [binding.value for binding in function.file.scopes.lookup(name.id, name) if binding.value is not None]
    return bool(values) and all(isinstance(value, ast.Call) and self_call(value) is not None for value in values[:1])


_CALL = "self._checkpointed_call(layer, context, latents, key_mask)"
_FLAG = "    _supports_gradient_checkpointing = True\n"
_MARKED = (_FLAG, _FLAG.replace("True", "«True»"))
FAILING = (
    Example(
        "some layers",
        {
            "model": [
                (
                    "        return (self.llm2vae",
                    "        context, latents = «self.layers[-1](context, latents, key_mask)»\n        return (self.llm2vae",
                )
            ]
        },
    ),
    Example(
        "the loop's variable, looked up late",
        {
            "model": [
                (
                    _CALL,
                    "self._checkpointed_call(lambda c, z: «layer(c, z, key_mask)», context, latents)",
                )
            ]
        },
    ),
    Example(
        "looked up late, by number in a function",
        {
            "model": [
                ("        for layer in self.layers:\n", "        for at in range(len(self.layers)):\n\n"),
                (
                    "            context, latents = " + _CALL,
                    "            def run(c, z):\n                return «self.layers[at](c, z, key_mask)»\n\n"
                    "            context, latents = self._checkpointed_call(run, context, latents)",
                ),
            ]
        },
    ),
    Example("no layer", {"model": [(_CALL, "self._checkpointed_call(«context», latents, key_mask)")]}),
    Example(
        "outside of training",
        {
            "model": [
                (
                    "            context, latents = " + _CALL,
                    "            if self.training:\n                context, latents = «layer(context, latents, key_mask)»\n"
                    "            else:\n                context, latents = " + _CALL,
                )
            ]
        },
    ),
    Example(
        "only where nothing is differentiated",
        {
            "model": [
                (
                    "            context, latents = " + _CALL,
                    "            if torch.is_grad_enabled():\n"
                    "                context, latents = «layer(context, latents, key_mask)»\n"
                    "            else:\n                context, latents = " + _CALL,
                )
            ]
        },
    ),
    Example(
        "above a size that the released model has not",
        {
            "model": [
                (
                    "            context, latents = " + _CALL,
                    "            if len(self.layers) > 48:\n                context, latents = "
                    + _CALL
                    + "\n            else:\n                context, latents = «layer(context, latents, key_mask)»",
                )
            ]
        },
    ),
    Example(
        "the condition turned round",
        {
            "model": [
                (
                    "            context, latents = " + _CALL,
                    "            if not self.training:\n                context, latents = "
                    + _CALL
                    + "\n            else:\n                context, latents = «layer(context, latents, key_mask)»",
                )
            ]
        },
    ),
    Example(
        "a method of the same name that does not",
        {
            "model": [
                (
                    "    @classmethod\n    def from_pretrained(",
                    "    def «_checkpointed_call»(self, layer, *args):\n        return layer(*args)\n\n"
                    "    @classmethod\n    def from_pretrained(",
                )
            ]
        },
    ),
    Example("layers are called directly", {"model": [(_CALL, "layer(context, latents, key_mask)"), _MARKED]}),
    Example(
        "layer.forward is called",
        {"model": [(_CALL, "layer.forward(context, latents, key_mask)"), _MARKED]},
        also=("OSC141",),
    ),
)
PASSING = (
    Example(
        "a method of the same name that hands on",
        {
            "model": [
                (
                    "    @classmethod\n    def from_pretrained(",
                    "    def _checkpointed_call(self, layer, *args):\n        with torch.autocast(args[0].device.type):\n"
                    "            return super()._checkpointed_call(layer, *args)\n\n"
                    "    @classmethod\n    def from_pretrained(",
                )
            ]
        },
    ),
    Example("through _checkpointed_call"),
    Example(
        "the loop's variable, bound",
        {
            "model": [
                (
                    _CALL,
                    "self._checkpointed_call(lambda c, z, layer=layer: layer(c, z, key_mask), context, latents)",
                )
            ]
        },
    ),
    Example(
        "under another name",
        {
            "model": [
                (_CALL, "call(layer, context, latents, key_mask)"),
                (
                    "        for layer in self.layers:\n",
                    "        call = partial(self._checkpointed_call)\n        for layer in self.layers:\n",
                ),
                ("import os\n", "import os\nfrom functools import partial\n"),
            ]
        },
    ),
    Example(
        "parts of a sequence, one by one",
        {
            "model": [
                (
                    "        self.norm = RMS",
                    "        self.head = nn.Sequential(nn.SiLU(), nn.SiLU())\n        self.norm = RMS",
                ),
                (
                    "return (self.llm2vae(self.norm(latents)),)",
                    "return (self.llm2vae(self.norm(self.head[0](latents))),)",
                ),
            ]
        },
    ),
    Example(
        "left out for long sequences or small models",
        {
            "model": [
                (
                    "            context, latents = " + _CALL,
                    "            if self.config.num_hidden_layers >= 2 or latents.shape[1] > 64:\n"
                    "                context, latents = "
                    + _CALL
                    + "\n            else:\n                context, latents = layer(context, latents, key_mask)",
                )
            ]
        },
    ),
    Example(
        "where something is differentiated",
        {
            "model": [
                (
                    "            context, latents = " + _CALL,
                    "            if torch.is_grad_enabled():\n                context, latents = "
                    + _CALL
                    + "\n            else:\n                context, latents = layer(context, latents, key_mask)",
                )
            ]
        },
    ),
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
