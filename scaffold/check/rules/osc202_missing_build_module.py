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
from scaffold.check.model.arms import arms
from scaffold.check.model.calls import bind, resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.follow import follow, returned
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC202"
NAME = "missing-build-module"
SEVERITY = "error"
CHECKLIST = ("T2",)
APPLIES = Applies(non_diffusers=True)
HELP = "return <Module>.from_pretrained(model_config.local_path, torch_dtype=torch_dtype) from build_module()"
_KEEPING = {"to", "eval", "train", "cuda", "cpu", "float", "bfloat16", "half", "requires_grad_"}


def check(package: Package) -> Hits:
    """Look at what ``build_module`` returns."""
    for adapter in package.training_adapters:
        method = adapter.method("build_module")
        if method is None or method.file.path == "verl_omni/pipelines/model_base.py":
            if adapter.resolved and not _elsewhere(adapter):
                yield Hit(adapter.file, adapter.node, f"{adapter.name} does not override build_module()")
            continue
        values = [value for item in returned(method) for _, value in arms(method, item)]
        if not values or any(isinstance(value, ast.Constant) and value.value is None for value in values):
            yield Hit(
                method.file,
                method.node,
                f"{adapter.name}.build_module() returns None, and diffusers is asked for the model",
            )
            continue
        own = package.deriving("NonDiffusersModelBase")
        for value in values:
            loader = _library_loader(method, value)
            if loader is not None and own:
                yield Hit(method.file, value, f"{loader} loads the model, and {own[0].name} is never built")
        for value in values:
            cls = method.file.project.class_of(method.file, value) if isinstance(value, ast.Name) else None
            if cls is not None:
                yield Hit(method.file, value, f"{cls.name} is a class, not a module that was loaded")
            yield from _exchanged(method, value)
            made = _made(method, value)
            if made is not None and not _loads(method, adapter):
                yield Hit(method.file, value, f"{made.name} is built without its weights")


def _exchanged(method: FunctionModel, value: ast.expr) -> Hits:
    """Look for path and dtype in each other's place."""
    called = resolve(method.file, value) if isinstance(value, ast.Call) else None
    if not isinstance(called, FunctionModel) or not isinstance(value, ast.Call):
        return
    for name, given in bind(value, called).items():
        word = given.attr if isinstance(given, ast.Attribute) else given.id if isinstance(given, ast.Name) else ""
        if (name.endswith("path") and word.endswith("dtype")) or (name.endswith("dtype") and word.endswith("path")):
            text = f"{called.name}() takes {name} here, and is given {ast.unparse(given)}"
            yield Hit(method.file, given, text)
            return


def _elsewhere(adapter: ClassModel) -> bool:
    return any(
        not base.startswith("verl_omni.pipelines.model_base.") and base != "abc.ABC" for base in adapter.external
    )


def _library_loader(method: FunctionModel, value: ast.expr) -> str | None:
    """Return the class of diffusers or transformers that is asked for the module."""
    for _ in range(5):
        value = follow(method.file, value)
        if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
            return None
        name = method.file.qualified(value.func) or ""
        if name.startswith(("diffusers.", "transformers.")) and ".from_" in name:
            return name.rpartition(".")[0].rpartition(".")[2]
        value = value.func.value
    return None


def _made(method: FunctionModel, value: ast.expr) -> ClassModel | None:
    """Return the class of the tree whose constructor makes the module, if it is one."""
    for _ in range(5):
        value = follow(method.file, value)
        if not isinstance(value, ast.Call):
            return None
        cls = method.file.project.class_of(method.file, value.func)
        if cls is not None:
            return cls
        if not (isinstance(value.func, ast.Attribute) and value.func.attr in _KEEPING):
            return None
        value = value.func.value
    return None


def _loads(method: FunctionModel, adapter: ClassModel) -> bool:
    """Whether weights are loaded on the way."""
    names = {"load_state_dict", "load_weights", "load_file", "load_model", "safe_open"}
    for function in reachable(method, adapter):
        if function.file == method.file:
            for call in function.calls:
                name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                if name in names or name.startswith("load"):
                    return True
    return False


FAILING = (
    Example(
        "path and dtype exchanged",
        training=("model_config.local_path, torch_dtype=torch_dtype", "«torch_dtype», model_config.local_path"),
    ),
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
            (
                "«build_module»(cls, model_config: DiffusionModelConfig, torch_dtype: torch.dtype) -> ToyForTraining:\n        return None"
            ),
        ),
    ),
)
PASSING = (
    Example("by position", training=("=torch_dtype", "")),
    Example("and to another type", training=("torch_dtype)\n", "torch_dtype).to(torch_dtype)\n")),
    Example(
        "by way of a name",
        training=(
            "return ToyForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)",
            (
                "module = ToyForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)\n        return module"
            ),
        ),
    ),
)
