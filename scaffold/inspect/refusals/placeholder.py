"""Placeholders: a registered class whose constructor does nothing but raise."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.refusals.refusal import Refusal

ORDER = 0
REASON = "a placeholder: its constructor always raises, so that there is no pipeline to train"


def refusal(program: Program) -> Refusal | None:
    """The constructor raises under no condition."""
    found = program.cls.find_method("__init__")
    if found is None:
        return None
    owner, init = found
    raised = next((s for s in init.body if isinstance(s, ast.Raise)), None)
    if raised is None:
        return None
    return Refusal(REASON, [Evidence(owner.module.file, raised.lineno), program.place(program.cls)], impossible=True)
