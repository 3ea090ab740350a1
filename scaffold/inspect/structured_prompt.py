"""Whether a model is prompted with structured captions: objects of fields, written as JSON, in place of plain words."""

from __future__ import annotations

import ast
import json

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.classes import ClassInfo

ORDER = 18
KEYS = ("detail.prompt.structured",)
_WORDS = ("PROMPT", "CAPTION")


def answers(program: Program) -> dict[str, Fact]:
    """True where a text that the pipeline itself gives its model in place of a prompt is a JSON object.

    A model that was trained on captions of fields has its negative prompt in fields, too.
    """
    found = [place for owner in program.cls.mro for place in _objects(program, owner)]
    return {KEYS[0]: fact(True, found)} if found else {}


def _objects(program: Program, owner: ClassInfo) -> list[object]:
    places = []
    for node in program.source.tree(owner.module.file).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        named = any(isinstance(t, ast.Name) and any(word in t.id.upper() for word in _WORDS) for t in targets)
        value = getattr(node, "value", None)
        if named and isinstance(value, ast.Constant) and isinstance(value.value, str) and _is_object(value.value):
            places.append(program.place(owner, node))
    return places


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
