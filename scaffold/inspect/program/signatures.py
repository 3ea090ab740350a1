"""The names of a method's parameters, where a pipeline asks ``inspect.signature`` which ones a scheduler takes.

For the schedulers of diffusers they stand in ``known_schedulers/signatures.json``: those of ``step`` and
``set_timesteps`` that are the same in the releases that `scaffold.inspect.scheduler_signatures` read.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.values import Attr, Call
from scaffold.reading import read_text
from scaffold.source.values import External, Func, Value

_FILE = Path(__file__).parent.parent / "known_schedulers" / "signatures.json"
_SIGNATURE = "inspect.signature"
_VIEWS = ("keys", "values", "items")


def parameters_of(value: Value) -> frozenset[str] | None:
    """The names in ``inspect.signature(method).parameters``; None for anything else, or where the method is not known.

    A method that takes any keyword has no such set.
    """
    method = _method(value)
    if method is None:
        return None
    if isinstance(method, Func):
        spec = method.node.args
        names = [a.arg for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]]
        return frozenset(names[1:] if method.bound is not None else names) if spec.kwarg is None else None
    if not isinstance(method, Attr):
        return None
    found = {_of_diffusers(owner, method.name) for owner in options(method.base)}
    return found.pop() if len(found) == 1 else None


def _method(value: Value) -> Value | None:
    """What ``inspect.signature`` was given, behind ``.parameters`` and ``.keys()``."""
    if isinstance(value, Call) and isinstance(value.func, Attr) and value.name in _VIEWS:
        value = value.func.base
    if isinstance(value, Attr) and value.name == "parameters":
        value = value.base
    if isinstance(value, Call) and isinstance(value.func, External) and value.func.path == _SIGNATURE and value.args:
        return value.args[0]
    return None


def _of_diffusers(made: Value, method: str) -> frozenset[str] | None:
    """The parameters of a method of what a class of diffusers constructs or loads."""
    func = made.func if isinstance(made, Call) else None
    while isinstance(func, Attr):
        func = func.base
    if not isinstance(func, External) or not func.path.startswith("diffusers."):
        return None
    name = next((part for part in reversed(func.path.split(".")) if part[:1].isupper()), "")
    names = _signatures().get(name, {}).get(method)
    return frozenset(names) if names is not None else None


@cache
def _signatures() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = json.loads(read_text(_FILE))
    return found
