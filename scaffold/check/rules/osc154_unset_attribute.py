"""The module calls a part of itself, or reads a field of its configuration, that nothing sets.

A projection that was left out of the port, or a boundary token that the configuration does not have, fails in the first
forward pass, on every rank, after the checkpoint was loaded.

    return (self.llm2vae(self.norm(x)),)         # and no self.llm2vae = …

Instead: build the part in ``__init__``, or add the field to the configuration and read it from the checkpoint.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import dotted
from scaffold.check.model.module_paths import set_names
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC154"
NAME = "unset-attribute"
SEVERITY = "error"
CHECKLIST = ("M7", "M8", "M9")
APPLIES = Applies(non_diffusers=True)
_PLAIN = ("torch.nn.Module", "verl_omni.pipelines.non_diffusers_model_base.", "abc.", "object")
_OF_MODULES = {
    "parameters", "named_parameters", "modules", "named_modules", "children", "to", "float", "half", "train", "eval",
    "state_dict", "load_state_dict", "apply", "cuda", "cpu", "type", "get_submodule", "register_buffer", "register_module",
    "register_parameter", "add_module", "requires_grad_", "buffers", "named_buffers", "zero_grad", "save_pretrained",
}  # fmt: skip


def check(package: Package) -> Hits:
    """Compare what the forward code calls, and what it reads of the configuration, with what is set."""
    config = package.config_class
    fields = set_names(config) if config is not None and not config.external else None
    for function in package.forward_functions:
        cls, index = function.cls, function.file.index
        if cls is None or function.file not in package.files:
            continue
        known = set_names(cls) if all(name.startswith(_PLAIN) for name in cls.external) and cls.resolved else None
        called = [call.func for call in function.calls]
        for node in index.nodes(ast.Attribute, function.node):
            owner = dotted(node.value)
            if owner is None:
                continue
            if known is not None and owner == function.bound and node in called and not node.attr.startswith("_"):
                if node.attr not in known | _OF_MODULES:
                    yield Hit(function.file, node, f"{cls.name} has no {node.attr}: nothing sets it")
            if config is not None and fields is not None and owner == f"{function.bound}.config":
                if node.attr not in fields:
                    yield Hit(function.file, node, f"{config.name} has no field {node.attr}")


FAILING = (
    Example(
        "no way out for latents",
        model=[
            ("        self.llm2vae = nn.Linear(config.hidden_size, config.latent_dim)\n", ""),
            ("self.llm2vae(self", "«self.llm2vae»(self"),
        ],
    ),
    Example(
        "no end token",
        model=[
            ("    end_of_image_id: int = 102\n", ""),
            ("self.config.end_of_image_id", "«self.config.end_of_image_id»"),
        ],
    ),
)
PASSING = (
    Example(
        "a method of what a static method computes",
        model=[
            (
                "        return (self.llm2vae(self.norm(latents)),)\n",
                "        return (self.llm2vae(self.shifted(self.norm(latents))),)\n\n"
                "    @staticmethod\n    def shifted(x):\n        return (x - 1).mul(2)\n",
            ),
        ],
    ),
    Example(
        "set by a loop",
        model=("        self.llm2vae = nn", '        setattr(self, "llm2vae", None)\n        self.llm2vae = nn'),
    ),
)
