"""The training adapter keeps state.

The engine never makes an instance of a training adapter: it calls class methods on the registered class. An
``__init__`` never runs, ``self`` is not there, and what is put on the class is shared by actor and reference, by all
micro-batches and by both directions of a resumed run.

    class ToyDiffusion(DiffusionModelBase):
        def __init__(self, config):
            self.cache = {}

Instead: class methods and static methods that get everything as arguments.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.check.rule import Hit, Hits

ID = "OSC215"
NAME = "stateful-adapter"
SEVERITY = "error"
CHECKLIST = ("pitfall 40",)
HELP = "use class methods that get everything as arguments"
_CHANGING = {"append", "extend", "insert", "update", "setdefault", "pop", "add", "remove", "clear"}
_CONTRACT = {
    "build_module", "configure_trainable_params", "configure_train_mode", "build_scheduler", "set_timesteps", "forward",
    "prepare_model_inputs", "forward_and_sample_previous_step", "prepare_condition", "inject_condition",
}  # fmt: skip


def check(package: Package) -> Hits:
    """Look at the package's own classes that training adapters consist of."""
    seen: set[ClassModel] = set()
    for adapter in package.training_adapters:
        # A pipeline that is registered for training by mistake is still an instance in the rollout.
        instance = adapter.derives_from("torch.nn.Module", "nn.Module", "VllmOmniPipelineBase")
        if instance or any(name.startswith("vllm_omni.") for name in adapter.external):
            continue
        for cls in adapter.mro:
            if cls.file in package.files and cls not in seen:
                seen.add(cls)
                for method in cls.methods.values():
                    yield from _of_method(cls, method)


def _of_method(cls: ClassModel, method: FunctionModel) -> Hits:
    bound, file = method.bound, method.file
    if method.name in ("__init__", "__new__", "__post_init__"):
        yield Hit(file, method.node, f"{cls.name}.{method.name}() never runs: the engine makes no instance")
        return
    if method.name in _CONTRACT and bound is not None and "classmethod" not in method.decorators:
        yield Hit(file, method.node, f"{cls.name}.{method.name}() is called on the class, but is not a class method")
        return
    owners = {bound, cls.name} - {None}
    for node in file.index.nodes(ast.Attribute, method.node):
        if isinstance(node.ctx, (ast.Store, ast.Del)) and _is(node.value, owners):
            yield Hit(file, node, f"{cls.name}.{node.attr} is kept from one call to the next")
    changed: list[tuple[ast.AST, ast.expr]] = []
    for part in file.index.nodes(ast.Subscript, method.node):
        if isinstance(part.ctx, (ast.Store, ast.Del)):
            changed.append((part, part.value))
    for call in method.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _CHANGING:
            changed.append((call, call.func.value))
    for place, holder in changed:
        if _of_class(cls, holder, owners) or _of_module(method, holder):
            yield Hit(file, place, f"{ast.unparse(holder)} is changed, and kept from one call to the next")
    for decorator in method.node.decorator_list:
        made = decorator.func if isinstance(decorator, ast.Call) else decorator
        if file.qualified(made) in ("functools.lru_cache", "functools.cache"):
            yield Hit(file, decorator, f"what {method.name}() answers is kept from one call to the next")
    for statement in file.index.nodes(ast.Global, method.node):
        yield Hit(file, statement, f"{', '.join(statement.names)} is kept from one call to the next")


def _is(node: ast.AST, owners: set[str | None]) -> bool:
    return isinstance(node, ast.Name) and node.id in owners


def _of_module(method: FunctionModel, node: ast.AST) -> bool:
    """Whether something is a container that a module holds."""
    if not isinstance(node, ast.Name):
        return False
    bindings = method.file.scopes.lookup(node.id, node)
    return any(binding in method.file.names.get(node.id, ()) and binding.kind == "variable" for binding in bindings)


def _of_class(cls: ClassModel, node: ast.AST, owners: set[str | None]) -> bool:
    """Whether something is an attribute of the class."""
    return isinstance(node, ast.Attribute) and _is(node.value, owners) and cls.attribute(node.attr) is not None


FAILING = (
    Example(
        "in a container of the file",
        training=[
            ("ToyForTraining\n", "ToyForTraining\n\n\n_LAST = {}\n"),
            ("latents.device)\n", 'latents.device)\n        «_LAST["step"]» = step\n'),
        ],
    ),
    Example(
        "__init__",
        training=(
            "DiffusionModelBase):\n",
            "DiffusionModelBase):\n    def «__init__»(self, config):\n        self.config = config\n\n",
        ),
    ),
)
PASSING = (
    Example(
        "a pipeline that is registered for training",
        rollout=[(" VllmOmniPipelineBase", " DiffusionModelBase"), ("@VllmOmniPipelineBase", "@DiffusionModelBase")],
        also="OSC201 OSC301",
    ),
)
