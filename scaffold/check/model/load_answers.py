"""What becomes of the names that a load of weights could not place."""

from __future__ import annotations

import ast

from scaffold.check.model.calls import attribute_name, resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile


def unchecked_names(file: PythonFile, call: ast.Call) -> str | None:
    """Return which of the two lists leads to no exception; None where both do, or that is not plain."""
    function = file.function_around(call)
    statement = file.index.parent(call)
    if function is None:
        return None
    if isinstance(statement, ast.Return):
        # A method that takes the place of the module's own, and is asked to be strict in vain.
        return "missing and unexpected" if function.name == "load_state_dict" and _answer_dropped(function) else None
    if file.qualified(call.func) == "functools.partial":
        return "missing and unexpected" if _prepared_dropped(function, statement) else None
    if isinstance(statement, ast.Expr):
        return "missing and unexpected"
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:
        names = [item.id if isinstance(item, ast.Name) else None for item in target.elts]
        if None in names:
            return None
        found = [_raises(function, str(name), None) for name in names]
    elif isinstance(target, ast.Name):
        found = [_raises(function, target.id, field) for field in ("missing_keys", "unexpected_keys")]
    else:
        return None
    words = [word for word, raised in zip(("missing", "unexpected"), found, strict=True) if not raised]
    return " and ".join(words) or None


def _answer_dropped(function: FunctionModel) -> bool:
    """Whether every call of a method of that name in the file drops the answer."""
    index = function.file.index
    calls = [c for c in index.nodes(ast.Call) if attribute_name(c) == function.name]
    outside = [call for call in calls if not index.contains(function.node, call)]
    return bool(outside) and all(isinstance(index.parent(call), ast.Expr) for call in outside)


def _prepared_dropped(function: FunctionModel, statement: ast.AST | None) -> bool:
    """Whether what a prepared call answers is dropped wherever it is made."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    calls = [
        c
        for c in function.calls
        if isinstance(c.func, ast.Name) and isinstance(target, ast.Name) and c.func.id == target.id
    ]
    return bool(calls) and all(isinstance(function.file.index.parent(call), ast.Expr) for call in calls)


def _raises(function: FunctionModel, name: str, field: str | None) -> bool:
    """Whether a list, or something made of it, decides over an exception."""
    names = {name}
    for _ in range(4):
        for assignment in function.nodes(ast.Assign):
            if isinstance(assignment, ast.Assign) and _mentions(assignment.value, names, field, name):
                names |= {t.id for t in assignment.targets if isinstance(t, ast.Name)}
    for statement in function.nodes(ast.If):
        assert isinstance(statement, ast.If)
        body = [node for part in statement.body for node in ast.walk(part)]
        stops = any(isinstance(node, ast.Raise) for node in body) or any(_may_raise(function, n) for n in body)
        if stops and _mentions(statement.test, names, field, name):
            return True
    for loop in function.nodes(ast.For):
        if isinstance(loop, ast.For) and _mentions(loop.iter, names, field, name):
            if any(isinstance(node, ast.Raise) for node in ast.walk(loop)):
                return True
    for check in function.nodes(ast.Assert):
        if isinstance(check, ast.Assert) and _mentions(check.test, names, field, name):
            return True
    # Handed to a function that raises, or of which nothing is known.
    for call in function.calls:
        given = [*call.args, *(item.value for item in call.keywords)]
        if any(_mentions(value, names, field, name) for value in given) and _may_raise(function, call):
            return True
    return False


def _mentions(node: ast.AST, names: set[str], field: str | None, result: str) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in names and (field is None or part.id != result):
            return True
        if field is not None and isinstance(part, ast.Attribute) and part.attr == field:
            if isinstance(part.value, ast.Name) and part.value.id == result:
                return True
    return False


def _may_raise(function: FunctionModel, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    found = resolve(function.file, node, function.cls)
    if isinstance(found, FunctionModel):
        return bool(found.nodes(ast.Raise) or found.nodes(ast.Assert))
    if isinstance(found, ClassModel):
        return False
    name = function.file.qualified(node.func)
    if name is None:
        # Loggers and methods of text are attributes of something; a bare name that cannot be resolved may raise.
        return isinstance(node.func, ast.Name)
    return not name.startswith(("logging.", "torch.", "warnings.")) and "." in name and "logger" not in name
