"""Whether the engine finds the pipeline by the checkpoint's own configuration, without being told a topology."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.source.syntax import walk_tree

ORDER = 16
KEYS = ("detail.engine.class_by_config",)
_OPTIONS = "vllm_omni/diffusion/data.py"


def answers(program: Program) -> dict[str, Fact]:
    """True where the engine's options set the pipeline's class to this one by what ``config.json`` says."""
    source = program.source
    if not source.exists(_OPTIONS) or not program.target.registry_keys:
        return {}
    if not any(key in source.read(_OPTIONS) for key in program.target.registry_keys):
        return {}
    for node in walk_tree(source.tree(_OPTIONS)):
        value = node.value if isinstance(node, (ast.Assign, ast.Return)) else None
        if isinstance(value, ast.Constant) and value.value in program.target.registry_keys:
            return {KEYS[0]: fact(True, [Evidence(_OPTIONS, value.lineno)])}
    return {}
