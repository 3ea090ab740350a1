"""The training adapter reaches into the wrapped module.

In a training step the module is wrapped: FSDP holds its parameters in shards and gathers them only while ``forward``
of the whole runs. A layer called from the adapter computes with a shard or raises; a weight read there is one; a
type compared there is the wrapper's. ``module.module`` exists under one wrapper and not under the next, and an attribute
of the module is found only where the wrapper hands the question on. All of it works on one device, and may break in
the first run with several.

    embeds = module.embed_tokens(ids)           # in prepare_model_inputs()

Instead: hand the inputs to ``module(**inputs)`` and compute inside ``forward``; read only plain attributes, as
``getattr(module, "module", module).config``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.dataflow import arguments, reaching
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Hit, Hits

ID = "OSC214"
NAME = "wrapped-module-attribute"
SEVERITY = "warning"
CHECKLIST = ("pitfall 35",)
HELP = 'compute inside forward(), and read plain attributes through getattr(module, "module", module)'
# These get the module before anything is wrapped.
_BEFORE = {"build_module", "configure_trainable_params", "validate_lora_config"}
_WRAPPERS = {"module", "_fsdp_wrapped_module", "_orig_mod", "base_model"}
# Of every module, and of what loads, wraps or adapts one.
_PLAIN = {
    "apply", "buffers", "children", "disable_adapter", "enable_adapters", "disable_adapters", "eval", "forward",
    "load_state_dict", "modules", "no_sync", "parameters", "requires_grad_", "state_dict", "summon_full_params", "to",
    "train", "zero_grad",
}  # fmt: skip
_GUARDS = ("hasattr", "isinstance", "getattr", "wrapped")


def check(package: Package) -> Hits:
    """Look at what is done with the module in a training step."""
    side = side_of(package, "training")
    own = _own(package.training_module) if package.training_module is not None and package.is_non_diffusers else set()
    loaded = package.loads_module
    for function in side.functions:
        for node in function.file.index.nodes(ast.Attribute, function.node) if function.name not in _BEFORE else ():
            if not _is_wrapped(side, function, node.value) or _is_guarded(function, node):
                continue
            if node.attr in _WRAPPERS:
                yield Hit(function.file, node, f"{ast.unparse(node)} exists under one kind of wrapper only")
            elif (node.attr in own and not _is_layer(function, node)) or (loaded and _is_called(function, node)):
                yield Hit(function.file, node, f"{ast.unparse(node)} is asked of whatever wraps the module")


def _is_called(function: FunctionModel, node: ast.Attribute) -> bool:
    """Whether something of the module computes: a method or a layer of it, by name or out of a table of them."""
    around: ast.AST = node
    while isinstance(parent := function.file.index.parent(around), ast.Subscript) and parent.value is around:
        around = parent
    called = isinstance(parent, ast.Call) and parent.func is around
    return called and node.attr not in _PLAIN and not node.attr.startswith(("register_", "named_", "get_", "set_"))


def _own(trained: ClassModel) -> set[str]:
    """Names of what the class sets on itself: its layers, ``self.config = config``."""
    assigned = trained.own_instance_attributes.items()
    return {name for name, found in assigned if any(item.method and item.method.name == "__init__" for item in found)}


def _is_layer(function: FunctionModel, node: ast.Attribute) -> bool:
    """Whether something of the attribute is only looked at: ``module.proj.weight.device``."""
    around = function.file.index.parent(node)
    return isinstance(around, ast.Attribute) and around.attr in ("weight", "bias", "in_features", "out_features")


def _is_wrapped(side: Side, function: FunctionModel, node: ast.expr, depth: int = 6) -> bool:
    """Whether an expression is the module as the engine hands it over, and nothing was unwrapped on the way."""
    if not depth or not isinstance(node, ast.Name):
        return False
    for binding in reaching(function, node):
        if binding.kind == "parameter":
            if function.cls in side.adapters and node.id == "module":
                return True
            if any(_is_wrapped(side, caller, value, depth - 1) for caller, value in arguments(side, function, node.id)):
                return True
        elif binding.value is not None and _is_wrapped(side, function, binding.value, depth - 1):
            return True
    return False


def _is_guarded(function: FunctionModel, node: ast.Attribute) -> bool:
    """Whether the code looks first whether the wrapper is there."""
    for outer in function.file.index.ancestors(node):
        if isinstance(outer, (ast.If, ast.IfExp, ast.While)):
            if any(word in ast.unparse(outer.test) for word in _GUARDS):
                return True
        if isinstance(outer, ast.Try):
            return True
    return False


FAILING = (
    Example(
        "a layer is called", training=("latents.device)\n", "latents.device)\n        «module.embed_tokens»(ids)\n")
    ),
    Example(
        "an attribute of the module",
        training=("latents.device)\n", "latents.device)\n        «module.config».hidden_size\n"),
    ),
)
PASSING = (
    Example(
        "a size of a layer", training=("latents.device)\n", "latents.device)\n        module.vae2llm.in_features\n")
    ),
)
