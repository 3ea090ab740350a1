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
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import arguments, reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC214"
NAME = "wrapped-module-attribute"
SEVERITY = "warning"
CHECKLIST = ("pitfall 35",)
APPLIES = Applies()
HELP = 'compute inside forward(), and read plain attributes through getattr(module, "module", module)'
# These get the module before anything is wrapped.
_BEFORE = {"build_module", "configure_trainable_params", "validate_lora_config"}
_WRAPPERS = {"module", "_fsdp_wrapped_module", "_orig_mod", "base_model"}
_HARMLESS = {"dtype", "device", "shape", "ndim", "training", "requires_grad", "in_features", "out_features"}
# A shard lies on the same device, but has a shape, and under mixed precision a type, of its own.
_OF_SHARDS = {"device", "requires_grad"}
_DEEPEST = 6


def check(package: Package) -> Hits:
    """Look at what is done with the module in a training step."""
    side = side_of(package, "training")
    trained = package.training_module
    layers = _layers(trained) if trained is not None else set()
    weights = {"weight", "bias", "data"} | (_parameters(package) if trained is not None else set())
    plain = _plain(trained) - layers if trained is not None and package.is_non_diffusers else set()
    for function in side.functions:
        if function.name in _BEFORE:
            continue
        index = function.file.index
        for node in index.nodes(ast.Attribute, function.node):
            if not _is_module(side, function, node.value):
                continue
            if node.attr in _WRAPPERS and isinstance(node.value, ast.Name) and not _guarded(function, node):
                yield Hit(function.file, node, f"{ast.unparse(node)} exists under one kind of wrapper only")
            elif node.attr in layers:
                use = _use(function, node, weights)
                if use is not None:
                    yield Hit(
                        function.file,
                        use[0],
                        f"{ast.unparse(use[0])} {use[1]} outside of forward(), where FSDP holds shards",
                    )
            elif node.attr in plain and _is_wrapped(side, function, node.value) and not _guarded(function, node):
                yield Hit(function.file, node, f"{ast.unparse(node)} is asked of whatever wraps the module")
        for call in function.calls:
            name = function.file.qualified(call.func)
            if name == "getattr" and len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
                if call.args[1].value in plain and _is_wrapped(side, function, call.args[0]):
                    yield Hit(function.file, call, f"{call.args[1].value} is asked of whatever wraps the module")
            if name in ("type", "isinstance") and call.args and trained is not None:
                if isinstance(call.args[0], ast.Name) and _is_module(side, function, call.args[0]):
                    wrapped = (
                        name == "type"
                        or function.file.project.class_of(function.file, call.args[-1]) in trained.mro[:1]
                    )
                    if wrapped and not _only_shown(function, call):
                        yield Hit(function.file, call, f"{ast.unparse(call)} sees the wrapper, not {trained.name}")


def _layers(trained: ClassModel) -> set[str]:
    """Names of the sub-modules and parameters that the class itself makes."""
    names: set[str] = set()
    for cls in trained.mro:
        for name, assigned in cls.own_instance_attributes.items():
            if any(isinstance(item.value, (ast.Call, ast.ListComp)) for item in assigned):
                names |= {name for item in assigned if item.value is not None and _makes_layer(cls, item.value)}
    return names


def _parameters(package: Package) -> set[str]:
    """Names of the parameters that the module and its sub-modules make themselves."""
    return {item.name for item in package.module_tree if item.qualified == "torch.nn.Parameter"}


def _plain(trained: ClassModel) -> set[str]:
    """Names of what the class keeps beside its layers: ``self.config = config``."""
    assigned = trained.own_instance_attributes.items()
    return {name for name, found in assigned if any(item.method and item.method.name == "__init__" for item in found)}


def _is_wrapped(side: Side, function: FunctionModel, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is the module as the engine hands it over, and nothing was unwrapped on the way."""
    if depth > _DEEPEST or not isinstance(node, ast.Name):
        return False
    for binding in reaching(function, node):
        if binding.kind == "parameter":
            if function.cls in side.adapters and node.id == "module":
                return True
            if any(_is_wrapped(side, caller, value, depth + 1) for caller, value in arguments(side, function, node.id)):
                return True
        elif binding.value is not None and _is_wrapped(side, function, binding.value, depth + 1):
            return True
    return False


def _makes_layer(cls: ClassModel, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = cls.file.qualified(value.func) or ""
    made = cls.file.project.class_of(cls.file, value.func)
    return name.startswith("torch.nn.") or (made is not None and made.derives_from("torch.nn.Module") is True)


def _is_module(side: Side, function: FunctionModel, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is the module that the engine hands over, also where ``module`` was unwrapped."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, ast.Call):
        plain = function.file.qualified(node.func) == "getattr" and len(node.args) == 3
        return plain and _is_module(side, function, node.args[2], depth + 1)
    if isinstance(node, ast.IfExp):
        return any(_is_module(side, function, part, depth + 1) for part in (node.body, node.orelse))
    if not isinstance(node, ast.Name):
        return False
    for binding in reaching(function, node):
        if binding.kind == "parameter":
            if function.cls in side.adapters and node.id == "module":
                return True
            if any(_is_module(side, caller, value, depth + 1) for caller, value in arguments(side, function, node.id)):
                return True
        elif binding.value is not None and _is_module(side, function, binding.value, depth + 1):
            return True
    return False


def _guarded(function: FunctionModel, node: ast.Attribute) -> bool:
    """Whether the code looks first whether the wrapper is there."""
    for outer in function.file.index.ancestors(node):
        if outer is function.node:
            return False
        if isinstance(outer, (ast.If, ast.IfExp, ast.While)):
            if any(word in ast.unparse(outer.test) for word in ("hasattr", "isinstance", "getattr", "wrapped")):
                return True
        if isinstance(outer, ast.Try):
            return True
    return False


def _use(function: FunctionModel, node: ast.Attribute, weights: set[str]) -> tuple[ast.AST, str] | None:
    """Return what is made of a layer: a call, or a weight that is read."""
    index = function.file.index
    inner: ast.AST = node
    for outer in index.ancestors(node):
        if isinstance(outer, ast.Attribute) and outer.value is inner:
            if outer.attr in _HARMLESS:
                return None
            if outer.attr in weights:
                after = index.parent(outer)
                if not (isinstance(after, ast.Attribute) and after.attr in _HARMLESS):
                    return outer, "is read"
                return None if after.attr in _OF_SHARDS else (after, "is read")
        elif isinstance(outer, ast.Subscript) and outer.value is inner:
            pass
        elif isinstance(outer, ast.Call) and outer.func is inner:
            last = inner.attr if isinstance(inner, ast.Attribute) else ""
            return (
                (inner, "is called") if inner is node or isinstance(inner, ast.Subscript) or last == "forward" else None
            )
        else:
            return None
        inner = outer
    return None


def _only_shown(function: FunctionModel, call: ast.Call) -> bool:
    around: Iterator[ast.AST] = function.file.index.ancestors(call)
    return any(isinstance(outer, (ast.JoinedStr, ast.Raise)) for outer in around)


FAILING = (
    Example(
        "a layer is called", training=("latents.device)\n", "latents.device)\n        «module.embed_tokens»(ids)\n")
    ),
    Example(
        "a weight is read", training=("latents.device)\n", "latents.device)\n        «module.vae2llm.weight».sum()\n")
    ),
    Example(
        "an attribute of the module",
        training=("latents.device)\n", "latents.device)\n        «module.config».hidden_size\n"),
    ),
)
PASSING = (
    Example(
        "a plain attribute",
        training=(
            "latents.device)\n",
            'latents.device)\n        getattr(module, "module", module).config.hidden_size\n',
        ),
    ),
    Example(
        "the device of a weight",
        training=("latents.device)\n", "latents.device)\n        module.vae2llm.weight.device\n"),
    ),
    Example(
        "a size of a layer", training=("latents.device)\n", "latents.device)\n        module.vae2llm.in_features\n")
    ),
)
