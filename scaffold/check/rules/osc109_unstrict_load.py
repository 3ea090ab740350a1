"""Weights are loaded with ``strict=False``, and what does not fit is not an error.

``load_state_dict(strict=False)`` answers with the names that are missing and those that are unexpected. Counting or
logging them is not enough: a renamed layer stays random, training starts from noise in one place, and the reward
merely rises more slowly.

    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing:
        logger.warning("missing keys: %d", len(missing))

Instead: ``strict=True``; or raise for every missing and every unexpected name that is not known to be harmless.
"""

from __future__ import annotations

import ast

from scaffold.check.editing import set_argument
from scaffold.check.example import Example
from scaffold.check.model.calls import argument, attribute_name, resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC109"
NAME = "unstrict-load"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 3")
APPLIES = Applies(non_diffusers=True)
HELP = "load with strict=True, or raise for missing and for unexpected names"
FIX_SAFETY = "unsafe"


def check(package: Package) -> Hits:
    """Look at every call and at what becomes of its answer."""
    for file in package.files:
        if b"load_state_dict" not in file.data:
            continue
        for call in file.index.nodes(ast.Call):
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "load_state_dict":
                continue
            swallowed = _swallowed(file, call)
            if swallowed is not None:
                yield Hit(file, swallowed, "names that do not fit are caught here, and loading goes on", fixable=False)
                continue
            strict = argument(call, "strict", 1)
            plain = strict is not None
            if strict is None:
                strict = _spread(file, call)
            if strict is None or file.value(strict) is not False:
                continue
            unchecked = _unchecked(file, call)
            if unchecked:
                text = f"strict=False, and {unchecked} names are no error"
                yield Hit(file, strict, text, fixable=plain, data=call)


def _swallowed(file: PythonFile, call: ast.Call) -> ast.ExceptHandler | None:
    """Return what catches the error of a strict load without raising again."""
    strict = argument(call, "strict", 1)
    for outer in file.index.ancestors(call):
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        if isinstance(outer, ast.Try) and any(file.index.contains(part, call) for part in outer.body):
            for handler in outer.handlers:
                ends = any(isinstance(node, (ast.Raise, ast.Return)) for node in file.index.walk(handler))
                again = any(attribute_name(c) == "load_state_dict" for c in file.index.nodes(ast.Call, handler))
                if not ends and not again and (strict is None or file.value(strict) is True):
                    return handler
    return None


def _spread(file: PythonFile, call: ast.Call) -> ast.expr | None:
    """Return what ``**options`` gives for ``strict``, where the dictionary is plain."""
    for item in call.keywords:
        given = follow(file, item.value) if item.arg is None else None
        if isinstance(given, ast.Dict):
            for key, value in zip(given.keys, given.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "strict":
                    return value
    return None


def fix(hit: Hit) -> str:
    """Load strictly."""
    assert isinstance(hit.file, PythonFile)
    return set_argument(hit.file, hit.data, "strict", "True")


def _unchecked(file: PythonFile, call: ast.Call) -> str | None:
    """Return which of the two lists leads to no exception; None where both do, or that is not plain."""
    function = file.function_around(call)
    statement = file.index.parent(call)
    if function is None or isinstance(statement, ast.Return):
        return None
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


_LOAD = "        model.load_state_dict(state, strict=True, assign=True)\n"
_HEAD = "        missing, unexpected = model.load_state_dict(state, strict=«False», assign=True)\n"
_PLAIN = _HEAD.replace("«", "").replace("»", "")
FAILING = (
    Example(
        "the error is caught",
        {
            "model": [
                (
                    _LOAD,
                    "        try:\n    "
                    + _LOAD
                    + "        «except RuntimeError as error:\n            print(error)»\n",
                )
            ]
        },
    ),
    Example("the answer is dropped", {"model": [(_LOAD, _LOAD.replace("True, assign", "«False», assign"))]}),
    Example(
        "in a dictionary of options",
        {
            "model": [
                (
                    _LOAD,
                    '        options = {"strict": «False», "assign": True}\n'
                    "        model.load_state_dict(state, **options)\n",
                )
            ]
        },
    ),
    Example("counted", {"model": [(_LOAD, _HEAD + "        if missing:\n            print(len(missing))\n")]}),
    Example(
        "only one of the two",
        {"model": [(_LOAD, _HEAD + "        if missing:\n            raise ValueError(missing)\n")]},
    ),
    Example(
        "by position, one name for the answer",
        {
            "model": [
                (
                    _LOAD,
                    "        result = model.load_state_dict(state, «False», assign=True)\n"
                    "        if result.unexpected_keys:\n            raise ValueError(result)\n",
                )
            ]
        },
    ),
    Example(
        "an option that is always off",
        {
            "model": [
                (_LOAD, _HEAD.replace("«False»", "«STRICT»")),
                ("IGNORED_KEYS = (", "STRICT = False\nIGNORED_KEYS = ("),
            ]
        },
    ),
)
PASSING = (
    Example("strict"),
    Example(
        "both raise",
        {"model": [(_LOAD, _PLAIN + "        if missing or unexpected:\n            raise ValueError(missing)\n")]},
    ),
    Example(
        "both raise, what is harmless left out",
        {
            "model": [
                (
                    _LOAD,
                    _PLAIN
                    + '        lost = [name for name in missing if "inv_freq" not in name]\n'
                    + "        if lost or unexpected:\n            raise ValueError(lost)\n",
                )
            ]
        },
    ),
    Example(
        "one answer, both lists",
        {
            "model": [
                (
                    _LOAD,
                    "        result = model.load_state_dict(state, strict=False, assign=True)\n"
                    "        assert not result.missing_keys and not result.unexpected_keys\n",
                )
            ]
        },
    ),
    Example("a function checks them", {"model": [(_LOAD, _PLAIN + "        check_names(missing, unexpected)\n")]}),
)
