"""Weights are loaded with ``strict=False``, and what does not fit is not an error.

A renamed layer, a missing shard, a typing error in the remap: loading goes on, the parameters keep what they were made
with, and the loss starts a little higher. Counting what is missing in a warning that scrolls by is not a check.

    missing, unexpected = model.load_state_dict(state, strict=False)

Instead: ``strict=True``, or raise for both lists.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import argument
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel, PythonFile
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC109"
NAME = "unstrict-load"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 3")
APPLIES = Applies(non_diffusers=True)
HELP = "load with strict=True, or raise for missing and for unexpected names"
FIX_SAFETY = "unsafe"
_HARMLESS = {"len", "print", "list", "sorted", "set", "str", "tuple"}


def check(package: Package) -> Hits:
    """Look at every call and at the use of its result."""
    for function in package.functions:
        for call in function.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict":
                strict = argument(call, "strict", 1)
                lists = _unchecked(function, call) if strict is not None else None
                if strict is not None and function.file.value(strict) is False and lists:
                    text = f"strict=False, and {lists} names are not an error"
                    yield Hit(function.file, strict, text, data=call)


def _unchecked(function: FunctionModel, call: ast.Call) -> str | None:
    """Return which of the two lists leads to no exception; None where both do, or the text does not tell."""
    statement = function.file.index.parent(call)
    if isinstance(statement, ast.Expr):
        return "missing and unexpected"
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:
        texts = [ast.unparse(item) for item in target.elts]
    elif isinstance(target, ast.Name):
        texts = [f"{target.id}.missing_keys", f"{target.id}.unexpected_keys"]
    else:
        return None
    found = zip(("missing", "unexpected"), texts, strict=True)
    return " and ".join(word for word, text in found if not _raises(function, text)) or None


def _raises(function: FunctionModel, text: str) -> bool:
    """Whether a list, or something made of it, decides over an exception, or goes to a function that may raise."""
    names = {text} | {name for name, value in function.assignments if text in _parts(value)}
    index = function.file.index
    for kind in (ast.If, ast.For, ast.Assert):
        for node in index.nodes(kind, function.node):
            asked = node.iter if isinstance(node, ast.For) else getattr(node, "test", node)
            stops = isinstance(node, ast.Assert) or bool(index.nodes(ast.Raise, node))
            if stops and names & _parts(asked):
                return True
    called = [c for c in function.calls if isinstance(c.func, ast.Name) and c.func.id not in _HARMLESS]
    return any(names & _parts(value) for call in called for value in call.args)


def _parts(node: ast.AST) -> set[str]:
    return {ast.unparse(part) for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))}


def fix(hit: Hit) -> str:
    """Load strictly."""
    from scaffold.check.editing import set_argument

    assert isinstance(hit.file, PythonFile)
    return set_argument(hit.file, hit.data, "strict", "True")


FAILING = (Example("the answer is dropped", model=("strict=True,", "strict=«False»,")),)
PASSING = (
    Example(
        "a default of the environment, by keyword",
        model=("strict=True,", 'strict=os.environ.get("STRICT", default="1") == "1",'),
    ),
)
