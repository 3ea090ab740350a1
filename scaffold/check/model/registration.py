"""Registrations: ``@Base.register("Architecture", algorithm="…")``, also written as a call on the class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from scaffold.check.model.calls import argument
from scaffold.check.model.python import ClassModel, PythonFile, Resolution

Side = Literal["training", "rollout", "omni_training", "omni_rollout"]
SIDES: dict[str, Side] = {
    "DiffusionModelBase": "training",
    "DiffusionI2IModelBase": "training",
    "VllmOmniPipelineBase": "rollout",
    "OmniModelBase": "omni_training",
    "OmniRolloutPipelineBase": "omni_rollout",
}


class Registration(NamedTuple):
    """One registration of a class.

    Attributes:
        side: whose registry it is.
        cls: the class; None where it cannot be resolved.
        call: the call of ``register``.
        file: where it stands.
        architecture, algorithm: the values, `UNKNOWN` where the text does not tell; None where not given.
        architecture_node, algorithm_node: where they are written; None where not given.
    """

    side: Side
    cls: ClassModel | None
    call: ast.Call
    file: PythonFile
    architecture: Any
    algorithm: Any
    architecture_node: ast.expr | None
    algorithm_node: ast.expr | None


def may_be_registered(cls: ClassModel) -> bool:
    """Whether a decorator of the package itself may register the class: ``@for_training("Toy")``."""
    heads = [item.func if isinstance(item, ast.Call) else item for item in cls.node.decorator_list]
    names = [cls.file.qualified(head) for head in heads]
    return any(name is None or (name.startswith("verl_omni.") and not name.endswith(".register")) for name in names)


def registrations(file: PythonFile) -> Iterator[Registration]:
    """Yield the registrations of a file."""
    for cls in file.classes:
        for decorator in cls.node.decorator_list:
            if isinstance(decorator, ast.Call):
                yield from _registration(file, decorator, cls)
    for call in file.index.nodes(ast.Call):
        if isinstance(call.func, ast.Call) and len(call.args) == 1:
            yield from _registration(file, call.func, file.project.class_of(file, call.args[0]))


def _registration(file: PythonFile, call: ast.Call, cls: ClassModel | None) -> Iterator[Registration]:
    name = file.qualified(call.func)
    if name is None or not name.endswith(".register"):
        return
    side = SIDES.get(name.split(".")[-2])
    if side is None:
        return
    architecture = argument(call, "model_type" if side == "omni_rollout" else "architecture", 0)
    algorithm = argument(call, "stage" if side == "omni_training" else "algorithm", 1)
    values = [None if node is None else file.value(node) for node in (architecture, algorithm)]
    yield Registration(side, cls, call, file, values[0], values[1], architecture, algorithm)


def takes_algorithm(project: Resolution, base: str) -> bool:
    """Whether a base class's ``register`` takes an algorithm; True where the tree has no such class."""
    file = project.python("verl_omni/pipelines/model_base.py")
    cls = file.find_class(base) if file is not None else None
    method = cls.method("register") if cls is not None else None
    return method is None or "algorithm" in method.parameters or method.node.args.kwarg is not None
