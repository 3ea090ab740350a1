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
from collections.abc import Iterator

from scaffold.check.editing import set_argument
from scaffold.check.example import Example
from scaffold.check.model.calls import argument, attribute_name
from scaffold.check.model.follow import follow
from scaffold.check.model.load_answers import unchecked_names
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.settled import settled
from scaffold.check.model.values import UNKNOWN
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
        for call in _loads(file):
            swallowed = _swallowed(file, call)
            if swallowed is not None:
                yield Hit(file, swallowed, "names that do not fit are caught here, and loading goes on", fixable=False)
                continue
            strict = argument(call, "strict", 1)
            plain = strict is not None
            if strict is None:
                strict = _spread(file, call)
            if strict is None or (value := settled(file, strict, package.files)) is UNKNOWN or value:
                continue
            unchecked = unchecked_names(file, call)
            if unchecked:
                said = "strict=False" if file.value(strict) is False else "strict is False where nobody says otherwise"
                yield Hit(file, strict, f"{said}, and {unchecked} names are no error", fixable=plain, data=call)


def _loads(file: PythonFile) -> Iterator[ast.Call]:
    """Yield the calls of ``load_state_dict``; of one that is prepared, ``partial(…, strict=False)``, that call."""
    for call in file.index.nodes(ast.Call):
        if attribute_name(call) == "load_state_dict" and isinstance(call.func, ast.Attribute):
            yield call
        elif file.qualified(call.func) == "functools.partial" and call.args:
            if isinstance(call.args[0], ast.Attribute) and call.args[0].attr == "load_state_dict":
                yield call


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


FAILING = (
    Example(
        "the error is caught",
        model=(
            "model.load_state_dict(state, strict=True, assign=True)",
            (
                "try:\n            model.load_state_dict(state, strict=True, assign=True)\n        «except RuntimeError as error:\n            print(error)»"
            ),
        ),
    ),
    Example("the answer is dropped", model=("strict=True,", "strict=«False»,")),
    Example("a keyword that nobody gives", model=("strict=True,", 'strict=«kwargs.pop("strict", False)»,')),
)
PASSING = (
    Example(
        "a default of the environment, by keyword",
        model=("strict=True,", 'strict=os.environ.get("STRICT", default="1") == "1",'),
    ),
    Example(
        "one answer, both lists",
        model=(
            "model.load_state_dict(state, strict=True, assign=True)",
            (
                "result = model.load_state_dict(state, strict=False, assign=True)\n        assert not result.missing_keys and not result.unexpected_keys"
            ),
        ),
    ),
    Example(
        "a function checks them",
        model=(
            "model.load_state_dict(state, strict=True, assign=True",
            (
                "missing, unexpected = model.load_state_dict(state, strict=False, assign=True)\n        check_names(missing, unexpected"
            ),
        ),
    ),
)
