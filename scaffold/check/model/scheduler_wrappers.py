"""Schedulers that a rollout adapter assigns in place of the pipeline's."""

from __future__ import annotations

import ast
from typing import NamedTuple

from scaffold.check.model.dataflow import reaching
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.check.model.sides import Side

SDE = "FlowMatchSDEDiscreteScheduler"


class Replacement(NamedTuple):
    """An assignment of a scheduler.

    Attributes:
        function: where; None for the class body.
        value: what is assigned.
        made: dotted name of the class that is made, where it resolves.
        wrapper: that class, where it is of a package of the tree.
    """

    function: FunctionModel
    value: ast.expr
    made: str | None
    wrapper: ClassModel | None

    @property
    def is_sde(self) -> bool:
        """Whether it is verl-omni's SDE scheduler or a subclass of it."""
        if self.wrapper is not None and self.wrapper.derives_from(SDE):
            return True
        return self.made is not None and self.made.rpartition(".")[2] == SDE


def replacements(side: Side, adapter: ClassModel, attribute: str = "scheduler") -> list[Replacement]:
    """Return what is assigned to ``self.scheduler`` in the adapter and in classes of the tree that it inherits."""
    found = []
    for assigned in adapter.instance_attributes(attribute):
        if assigned.value is None or assigned.method is None:
            continue
        call = _call(assigned.method, assigned.value)
        target = call.func if call is not None else None
        if isinstance(target, ast.Attribute) and target.attr.startswith("from_"):
            target = target.value
        made = assigned.file.qualified(target) if target is not None else None
        cls = assigned.file.project.class_of(assigned.file, target) if target is not None else None
        found.append(Replacement(assigned.method, assigned.value, made, _own(cls)))
    return found


def _own(cls: ClassModel | None) -> ClassModel | None:
    return cls if cls is not None and not cls.file.path.startswith("verl_omni/pipelines/schedulers/") else None


def _call(function: FunctionModel, value: ast.expr) -> ast.Call | None:
    for _ in range(5):
        if isinstance(value, ast.Call):
            return value
        if not isinstance(value, ast.Name):
            return None
        bindings = reaching(function, value)
        if len(bindings) != 1 or bindings[0].value is None:
            return None
        value = bindings[0].value
    return None
