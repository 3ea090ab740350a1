"""Whether a model is prompted with structured captions: objects of fields, written as JSON, in place of plain words."""

from __future__ import annotations

import ast
import json

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.source.classes import ClassInfo

ORDER = 18
KEYS = ("detail.prompt.structured",)
_WORDS = ("PROMPT", "CAPTION")


def answers(program: Program) -> dict[str, Fact]:
    """True where a text that the pipeline itself gives its model in place of a prompt is a JSON object.

    A model that was trained on captions of fields has its negative prompt in fields, too.
    """
    found = [place for owner in program.cls.mro for place in _objects(program, owner)]
    return {KEYS[0]: fact(True, found)} if found else {}


def _objects(program: Program, owner: ClassInfo) -> list[Evidence]:
    places = []
    for node in program.source.tree(owner.module.file).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Constant):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        named = any(isinstance(t, ast.Name) and any(word in t.id.upper() for word in _WORDS) for t in targets)
        if named and isinstance(node.value.value, str) and _is_object(node.value.value):
            places.append(program.place(owner, node))
    return places


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
