"""A token id is written as a number where the configuration has it.

The number is right for the released checkpoint only. The tiny model of the tests, a checkpoint with another tokenizer
or an added token has another id, and the sequence holds a token that means something else.

    torch.full((batch, 1), 32001, device=device)

Instead: ``self.config.start_of_image_id``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC123"
NAME = "literal-token-id"
SEVERITY = "error"
CHECKLIST = ("M9",)
APPLIES = Applies(non_diffusers=True)
_LEAST = 10  # small numbers mean many things


def check(package: Package) -> Hits:
    """Look for the defaults of the configuration's token ids as numbers in code that runs in training."""
    config = package.config_class
    if config is None:
        return
    ids = {}
    for name, field in config.fields.items():
        value = field.file.value(field.value) if field.value is not None and name.endswith(("_id", "_token")) else None
        if type(value) is int and value >= _LEAST:
            ids[value] = name
    functions = list(package.forward_functions)
    functions += [m for adapter in package.training_adapters for m in adapter.methods.values()]
    for function in dict.fromkeys(functions):
        if function.file not in package.files:
            continue
        for node in function.nodes(ast.Constant):
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value in ids:
                text = f"{node.value} is the default of {config.name}.{ids[node.value]}"
                yield Hit(function.file, node, text, f"write config.{ids[node.value]}")
        for node in function.nodes(ast.Attribute):
            if isinstance(node, ast.Attribute) and node.attr in ids.values():
                if function.file.project.class_of(function.file, node.value) is config:
                    text = f"{ast.unparse(node)} is the default of the class, not what the checkpoint says"
                    yield Hit(function.file, node, text, f"write config.{node.attr} of the module's own configuration")
        for node in function.nodes(ast.Name):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id.isupper():
                value = function.file.value(node)
                if type(value) is int and value in ids:
                    text = f"{node.id} is {value}, the default of {config.name}.{ids[value]}"
                    yield Hit(function.file, node, text, f"write config.{ids[value]}")


_USE = "(self.config.start_of_image_id, self.config.end_of_image_id)"
FAILING = (
    Example(
        "of the class",
        {"model": [(_USE, "(«ToyTrainingConfig.start_of_image_id», self.config.end_of_image_id)")]},
    ),
    Example(
        "a number",
        {
            "model": [
                (_USE, "(self.config.start_of_image_id, «102»)"),
                ("    end_of_image_id: int = 102", "    end_of_image_id: int = 102"),
            ]
        },
        also=("OSC122",),
    ),
    Example(
        "a constant of the module",
        {"model": [(_USE, "(«START», self.config.end_of_image_id)"), ("KEY_MAP = (", "START = 101\nKEY_MAP = (")]},
        also=("OSC122",),
    ),
)
PASSING = (
    Example("from the configuration"),
    Example("another number", {"model": [("(0, 2 + latents.shape[1])", "(0, 2 + 1 * latents.shape[1])")]}),
)
