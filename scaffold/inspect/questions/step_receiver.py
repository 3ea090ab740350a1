"""The attribute of the pipeline on which its own class calls ``step``, read from the text of the call."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.source.syntax import around, is_own

ORDER = 18
KEYS = ("detail.step.attribute",)


def answers(program: Program) -> dict[str, Fact]:
    """Name of the attribute; unknown where the call stands outside of the pipeline's class or is on something else."""
    loop = program.denoising
    if loop is None or loop.step is None or loop.step.at is None:
        return {}
    at = loop.step.at
    if loop.loop.owner != program.pipeline.cls.name:
        return {}
    for owner in around(program.source.tree(at.file), at.line):
        if not isinstance(owner, ast.ClassDef) or owner.name != loop.loop.owner:
            continue
        for call in around(owner, at.line):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "step"
                and is_own(call.func.value)
            ):
                return {"detail.step.attribute": fact(call.func.value.attr, [at])}
    return {}
