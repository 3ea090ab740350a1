"""Layers are kept where PyTorch does not see them.

A plain list or dictionary of modules is no part of the module: its parameters are in no ``state_dict``, no optimiser
and no shard. They keep their random values, or stay on the meta device, and the checkpoint's weights have no place.

    self.layers = [ToyLayer(config) for _ in range(config.num_hidden_layers)]

Instead: ``self.layers = nn.ModuleList(ToyLayer(config) for _ in range(config.num_hidden_layers))``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC136"
NAME = "unregistered-layers"
SEVERITY = "error"
CHECKLIST = ("M7", "M8", "pitfall 22")
APPLIES = Applies(non_diffusers=True)
HELP = "keep layers in nn.ModuleList or nn.ModuleDict"


def check(package: Package) -> Hits:
    """Look at what the classes of the module assign to themselves."""
    classes = [package.training_module, *(part.cls for part in package.module_tree)]
    for cls in dict.fromkeys(classes):
        if cls is None or cls.file not in package.files:
            continue
        for assigned in (item for found in cls.own_instance_attributes.values() for item in found):
            value = assigned.value
            built = value.elt if isinstance(value, (ast.ListComp, ast.GeneratorExp)) else None
            if isinstance(value, (ast.List, ast.Tuple)) and value.elts:
                built = value.elts[0]
            if isinstance(value, ast.DictComp):
                built = value.value
            if value is not None and built is not None and _is_layer(cls, built):
                yield Hit(cls.file, value, f"{cls.name}.{assigned.name} holds modules that PyTorch does not see")


def _is_layer(cls: ClassModel, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    made = cls.file.project.class_of(cls.file, value.func)
    if made is not None:
        return made.derives_from("torch.nn.Module", "nn.Module") is True
    name = cls.file.qualified(value.func) or ""
    return name.startswith("torch.nn.") and name.count(".") == 2 and name[9:10].isupper()


FAILING = (
    Example(
        "a list",
        {
            "model": [
                (
                    "nn.ModuleList(ToyLayer(config) for _ in range(config.num_hidden_layers))",
                    "«[ToyLayer(config) for _ in range(config.num_hidden_layers)]»",
                )
            ]
        },
        also=("OSC103",),
    ),
)
PASSING = (
    Example("a ModuleList"),
    Example(
        "a ModuleList of a list",
        {
            "model": [
                (
                    "nn.ModuleList(ToyLayer(config) for _ in range(config.num_hidden_layers))",
                    "nn.ModuleList([ToyLayer(config) for _ in range(config.num_hidden_layers)])",
                )
            ]
        },
    ),
    Example(
        "sizes in a list",
        {
            "model": [
                (
                    "self.config = config\n",
                    "self.config = config\n        self.sizes = [int(size) for size in (1, 2)]\n",
                )
            ]
        },
    ),
)
