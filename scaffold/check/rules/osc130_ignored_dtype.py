"""The type that the trainer asks for is not used.

``build_module`` and ``from_pretrained`` get ``torch_dtype`` from the run's configuration. Where it is dropped, the
module keeps the checkpoint's type: twice the memory, or weights of bf16 where float32 was asked for, and FSDP refuses
to flatten parameters of different types.

    def from_pretrained(cls, model_path, torch_dtype=torch.bfloat16):
        …
        return model                                # never brought to torch_dtype

Instead: ``return model.to(torch_dtype)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC130"
NAME = "ignored-dtype"
SEVERITY = "error"
CHECKLIST = ("M6", "T2")
APPLIES = Applies(non_diffusers=True)
HELP = "hand torch_dtype on, and bring the module to it: model.to(torch_dtype)"


def check(package: Package) -> Hits:
    """Look whether the parameter is read in either method."""
    module = package.training_module
    methods = [module.method("from_pretrained")] if module is not None else []
    methods += [adapter.method("build_module") for adapter in package.training_adapters]
    for method in dict.fromkeys(methods):
        if method is None or method.file not in package.files or method.is_abstract:
            continue
        for name in method.parameters:
            parameter = method.parameter_node(name)
            if "dtype" not in name or parameter is None:
                continue
            read = any(
                node.id == name
                for node in method.file.index.nodes(ast.Name, method.node)
                if isinstance(node.ctx, ast.Load)
            )
            spread = any(isinstance(node, ast.Name) and node.id == "locals" for node in method.nodes(ast.Name))
            loads = any(attribute_name(call) == "from_pretrained" for call in method.calls)
            if not read and not spread and (loads or method.name != "build_module"):
                yield Hit(method.file, parameter, f"{method.name}() takes {name} and does not use it")


FAILING = (
    Example("in the module", model=[(" torch_dtype", " «torch_dtype»"), (".to(torch_dtype)", "")]),
    Example("a type of its own", model=[(" torch_dtype", " «torch_dtype»"), ("(torch_dtype", "(torch.float32")]),
    Example(
        "in the adapter",
        training=(
            (
                "torch_dtype: torch.dtype) -> ToyForTraining:\n        return ToyForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype"
            ),
            "«torch_dtype»: torch.dtype) -> ToyForTraining:\n        return ToyForTraining.from_pretrained(model_config.local_path",
        ),
    ),
)
PASSING = (
    Example(
        "used for every tensor",
        model=(
            "return model.to(torch_dtype)",
            "for parameter in model.parameters():\n            parameter.data = parameter.data.to(torch_dtype)\n        return model",
        ),
    ),
)
