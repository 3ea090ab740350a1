"""The training adapter does not build its module with ``from_pretrained``.

Where ``build_module()`` returns None, the engine falls back to ``diffusers.AutoModel``, which cannot load a model
that diffusers does not know. Where it returns a module that never saw the checkpoint, training starts from random
weights and looks like a bad reward.

    @classmethod
    def build_module(cls, model_config, torch_dtype):
        return ToyForTraining(ToyTrainingConfig())

Instead: ``return ToyForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import ending, instance_class, returned
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.reach import reachable
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC202"
NAME = "missing-build-module"
SEVERITY = "error"
CHECKLIST = ("T2",)
APPLIES = Applies(non_diffusers=True)
HELP = "return <Module>.from_pretrained(model_config.local_path, torch_dtype=torch_dtype) from build_module()"
_MODULES = ("torch.nn.Module", "NonDiffusersModelBase")
_BASE = "verl_omni/pipelines/model_base.py"


def check(package: Package) -> Hits:
    """Look at what ``build_module`` returns, and whether it reaches code that loads."""
    for adapter in package.training_adapters:
        method = adapter.method("build_module")
        if method is None or method.file.path == _BASE:
            known = all(base.startswith(("verl_omni.pipelines.model_base.", "abc.")) for base in adapter.external)
            if adapter.resolved and known:
                yield Hit(adapter.file, adapter.node, f"{adapter.name} does not override build_module()")
            continue
        values = returned(method)
        if not values or any(isinstance(value, ast.Constant) and value.value is None for value in values):
            text = f"{adapter.name}.build_module() returns None, and diffusers is asked for the model"
            yield Hit(method.file, method.node, text)
            continue
        wrong = list(_no_module(method, values))
        yield from wrong
        loads = [ending(call.func) for function in reachable(method, adapter) for call in function.calls]
        if not wrong and not any(name.endswith(("load_state_dict", "from_pretrained", "load_model")) for name in loads):
            yield Hit(method.file, method.node, f"{adapter.name}.build_module() loads no weights")


def _no_module(method: FunctionModel, values: list[ast.expr]) -> Hits:
    for value in values:
        cls = method.file.project.class_of(method.file, value.func) if isinstance(value, ast.Call) else None
        built = instance_class(method, value)
        if cls is not None and cls.derives_from(*_MODULES):
            yield Hit(method.file, value, f"{cls.name}() is made here, and no checkpoint is loaded into it")
        elif built is not None and built.derives_from(*_MODULES) is False:
            yield Hit(method.file, value, f"{built.name} is not a module")
        elif isinstance(value, (ast.Name, ast.Attribute)) and method.file.project.class_of(method.file, value):
            yield Hit(method.file, value, f"{ast.unparse(value)} is a class, not an instance of it")


FAILING = (
    Example(
        "the class",
        training=(
            "return ToyForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)",
            "print(torch_dtype)\n        return «ToyForTraining»",
        ),
    ),
    Example(
        "None",
        training=(
            (
                "build_module(cls, model_config: DiffusionModelConfig, torch_dtype: torch.dtype) -> ToyForTraining:\n        return ToyForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)"
            ),
            "«build_module»(cls, model_config: DiffusionModelConfig, torch_dtype: torch.dtype) -> ToyForTraining:\n        return None",
        ),
    ),
)
PASSING = (Example("by position", training=("=torch_dtype", "")),)
