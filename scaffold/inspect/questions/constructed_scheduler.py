"""A scheduler that the method around the loop makes for itself: where, and how the loop calls it."""

from __future__ import annotations

import ast
import textwrap

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.questions.inline_update import method_around
from scaffold.inspect.questions.update_region import spans
from scaffold.source.syntax import walk_tree

ORDER = 17
KEYS = ("detail.construction.statement", "detail.construction.method")


def answers(program: Program) -> dict[str, Fact]:
    """The construction's ``text`` and ``name``, the ``update`` and the ``call`` of the step in it, the method's text.

    Established where the step is called on a local name that one statement of the method binds, and the step's result
    is bound by one statement too.
    """
    loop = program.denoising
    if loop is None or loop.step is None or loop.step.at is None:
        return {}
    at = loop.step.at
    found = method_around(program, at)
    if found is None:
        return {}
    text, places = found
    tree = ast.parse(textwrap.dedent(text))
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef):
        return {}
    offset = places[0].line - 1
    updates = [node for node in walk_tree(function) if isinstance(node, ast.Assign) and spans(node, at.line - offset)]
    calls = [call for node in updates for call in walk_tree(node.value) if _is_step(call)]
    if len(updates) != 1 or len(calls) != 1 or len(updates[0].targets) != 1:
        return {}
    call = calls[0]
    receiver = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    if not isinstance(receiver, ast.Name):
        return {}
    bound = [node for node in walk_tree(function) if isinstance(node, ast.Assign) and _binds(node, receiver.id)]
    if len(bound) != 1 or not isinstance(bound[0].value, ast.Call):
        return {}
    value = {
        "method": function.name,
        "name": receiver.id,
        "text": ast.unparse(bound[0]),
        "update": ast.unparse(updates[0]),
        "sample": ast.unparse(updates[0].targets[0]),
        "call": ast.unparse(call),
    }
    made = Evidence(at.file, bound[0].lineno + offset)
    return {
        "detail.construction.statement": fact(value, [made, at]),
        "detail.construction.method": fact(text, places),
    }


def _is_step(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"


def _binds(node: ast.Assign, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for target in node.targets for n in walk_tree(target))
