"""The attribute of the pipeline to which the scheduler is assigned where it is made, whatever then steps with it."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.held_scheduler import held_scheduler
from scaffold.source.syntax import is_own, walk_tree

ORDER = 18
KEYS = ("detail.scheduler.assigned_to",)


def answers(program: Program) -> dict[str, Fact]:
    """Name of the attribute, where ``self.name = Scheduler(…)`` of a class of the pipeline is all that makes it.

    What other objects are given is then read from the attribute.
    """
    held = held_scheduler(program)
    if held is None or any(value.at is None for value in held.made):
        return {}
    places = [value.at for value in held.made if value.at is not None]
    names = {_assigned(program, at) for at in places}
    name = names.pop() if len(names) == 1 else None
    return {KEYS[0]: fact(name, places)} if name is not None else {}


def _assigned(program: Program, at: Evidence) -> str | None:
    """The attribute of the assignment whose whole value is made at a place, in a class that the pipeline is or has."""
    family = {cls.name for cls in program.pipeline.cls.mro if cls.module.file == at.file}
    for owner in program.source.tree(at.file).body:
        if not isinstance(owner, ast.ClassDef) or owner.name not in family:
            continue
        for node in walk_tree(owner):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
                continue
            target = node.targets[0]
            if is_own(target) and node.value.lineno == at.line:
                return target.attr
    return None
