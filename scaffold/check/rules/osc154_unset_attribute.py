"""The module reads an attribute of itself, or a field of its configuration, that nothing sets.

An embedding that is not built, a field that the dataclass does not have: Python finds out at the first forward pass,
after the weights have been loaded on every rank.

    tokens = self.time_embedder(timestep)                # and __init__ builds no time_embedder

Instead: build it in ``__init__``; give the configuration the field.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC154"
NAME = "unset-attribute"
SEVERITY = "error"
CHECKLIST = ("M7", "M8", "M9")
APPLIES = Applies(non_diffusers=True)
HELP = "build it in __init__, or read the name that is set"
_KNOWN_BASES = ("torch.nn.Module", "torch.nn.modules.module.Module", "abc.ABC", "object")
_OWN_BASE = "verl_omni.pipelines.non_diffusers_model_base.NonDiffusersModelBase"
# What torch.nn.Module and verl-omni's base have by themselves.
_INHERITED = frozenset(
    [
        "training",
        "parameters",
        "named_parameters",
        "buffers",
        "named_buffers",
        "children",
        "named_children",
        "modules",
        "named_modules",
        "state_dict",
        "load_state_dict",
        "register_buffer",
        "register_parameter",
        "register_module",
        "add_module",
        "get_submodule",
        "set_submodule",
        "get_parameter",
        "get_buffer",
        "apply",
        "cuda",
        "cpu",
        "npu",
        "xpu",
        "ipu",
        "mtia",
        "to",
        "to_empty",
        "type",
        "float",
        "double",
        "half",
        "bfloat16",
        "train",
        "eval",
        "requires_grad_",
        "zero_grad",
        "share_memory",
        "extra_repr",
        "compile",
        "forward",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
        "register_backward_hook",
        "register_state_dict_pre_hook",
        "register_load_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_state_dict_post_hook",
        "get_extra_state",
        "set_extra_state",
        "dump_patches",
        "call_super_init",
        "config",
        "gradient_checkpointing",
        "device",
        "dtype",
        "enable_gradient_checkpointing",
        "add_adapter",
        "load_lora_adapter",
        "set_adapter",
        "disable_adapters",
        "enable_adapters",
        "save_pretrained",
        "from_pretrained",
        "peft_config",
    ]
)


def check(package: Package) -> Hits:
    """Compare what methods read of ``self`` and of the configuration with what is set."""
    classes = [part.cls for part in package.module_tree if part.cls is not None]
    if package.training_module is not None:
        classes.append(package.training_module)
    for cls in dict.fromkeys(classes):
        if cls.file in package.files and _is_plain(cls):
            yield from _of_self(package, cls)
            yield from _of_config(package, cls)


def _is_plain(cls: ClassModel) -> bool:
    """Whether the class and its ancestors set attributes by plain statements alone."""
    if not cls.resolved or not all(name in (*_KNOWN_BASES, _OWN_BASE) for name in cls.external):
        return False
    if any(name in one.methods for one in cls.mro for name in ("__getattr__", "__getattribute__", "__setattr__")):
        return False
    names = [n for one in cls.mro for n in one.file.index.nodes(ast.Name, one.node)]
    words = [n for one in cls.mro for n in one.file.index.nodes(ast.Attribute, one.node)]
    return not any(n.id in ("setattr", "vars") for n in names) and not any(n.attr == "__dict__" for n in words)


def _of_self(package: Package, cls: ClassModel) -> Hits:
    given = set(_given(package, cls))
    for method in cls.methods.values():
        if method.bound is None or method.file is not cls.file:
            continue
        for node in method.nodes(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            if not isinstance(node.ctx, ast.Load) or not isinstance(node.value, ast.Name):
                continue
            if node.value.id != method.bound or node.attr.startswith("_") or node.attr in given:
                continue
            if method.parameters and method.bound == "self":
                yield Hit(method.file, node, f"{cls.name} has no {node.attr}")


def _given(package: Package, cls: ClassModel) -> Iterator[str]:
    yield from _INHERITED
    for one in cls.mro:
        yield from one.methods
        yield from one.own_attributes
        yield from one.own_instance_attributes
        # Names that are registered or declared as text.
        yield from (n.value for n in one.file.index.nodes(ast.Constant, one.node) if isinstance(n.value, str))
    for file in package.files:
        # Set from outside.
        stored = [n for n in file.index.nodes(ast.Attribute) if isinstance(n.ctx, ast.Store)]
        yield from (n.attr for n in stored if not (isinstance(n.value, ast.Name) and n.value.id == "self"))


def _of_config(package: Package, cls: ClassModel) -> Hits:
    config = package.config_class
    if config is None or not config.is_dataclass or not config.resolved or config.external:
        return
    if any(name in one.methods for one in config.mro for name in ("__getattr__", "__getattribute__")):
        return
    given = {name for one in config.mro for name in (*one.methods, *one.own_attributes, *one.own_instance_attributes)}
    for method in cls.methods.values():
        for node in method.nodes(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            if ast.unparse(node.value) != "self.config" or not isinstance(node.ctx, ast.Load):
                continue
            if node.attr not in given and not node.attr.startswith("_"):
                yield Hit(method.file, node, f"{config.name} has no {node.attr}", "give the configuration the field")


_BUILT = "        self.time_embedder = TimestepEmbedder(config.hidden_size)\n"
_USED = "latents = latents + self.time_embedder("
FAILING = (
    Example(
        "an embedding that is not built",
        {"model": [(_BUILT, ""), (_USED, "latents = latents + «self.time_embedder»(")]},
        also=("OSC408",),
    ),
    Example(
        "a field that the configuration lacks",
        {"model": [(_USED, _USED.replace("= latents", "= «self.config.latent_scale» * latents"))]},
    ),
)
PASSING = (
    Example("all is set"),
    Example(
        "registered by name",
        {
            "model": [
                (_BUILT, '        self.add_module("time_embedder", TimestepEmbedder(config.hidden_size))\n'),
            ]
        },
        also=("OSC408",),
    ),
)
