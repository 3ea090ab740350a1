"""Which functions of the tree can be reached from one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.calls import resolve
from scaffold.check.model.python import ClassModel, FunctionModel, PythonFile
from scaffold.check.model.submodules import submodules

_MOST = 400


def reachable(start: FunctionModel, receiver: ClassModel | None = None) -> list[FunctionModel]:
    """Return ``start`` and every function of the tree that it can reach, in order of discovery.

    Calls, functions passed as arguments, constructors, and the ``forward`` of sub-modules that ``nn.Module`` classes
    build are followed.

    Args:
        start: where to begin.
        receiver: class that ``self`` is in ``start``; its own class by default.
    """
    known = start.file.project.reachable
    key = start, receiver or start.cls
    if key not in known:
        known[key] = _reachable(*key)
    return known[key]


def _reachable(start: FunctionModel, receiver: ClassModel | None) -> list[FunctionModel]:
    seen: dict[tuple[FunctionModel, ClassModel | None], None] = {}
    pending = [(start, receiver)]
    while pending and len(seen) < _MOST:
        item = pending.pop(0)
        if item in seen:
            continue
        seen[item] = None
        pending += _next(*item)
    return list(dict.fromkeys(function for function, _ in seen))


def _next(function: FunctionModel, receiver: ClassModel | None) -> Iterator[tuple[FunctionModel, ClassModel | None]]:
    file = function.file
    for call in function.calls:
        found = resolve(file, call, receiver)
        if isinstance(found, ClassModel):
            for name in ("__init__", "__post_init__", "__call__"):
                if (method := found.method(name)) is not None:
                    yield method, found
            if name_called_on_self(function, call):
                if (method := found.method("forward")) is not None:
                    yield method, found
        elif found is not None:
            bound = receiver if receiver is not None and found.cls in receiver.mro else found.cls
            yield found, bound
        for value in (*call.args, *(item.value for item in call.keywords)):
            handed = _handed(file, value, function, receiver)
            if handed is not None:
                yield handed, receiver if receiver is not None and handed.cls in receiver.mro else handed.cls
    if receiver is not None and function.name == "forward":
        for built in submodules(receiver):
            if built.cls is not None and (method := built.cls.method("forward")) is not None:
                yield method, built.cls


def name_called_on_self(function: FunctionModel, call: ast.Call) -> bool:
    """Whether a call is ``self.attribute(…)``."""
    target = call.func
    return (
        isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == function.bound
    )


def _handed(
    file: PythonFile, value: ast.expr, around: FunctionModel, receiver: ClassModel | None
) -> FunctionModel | None:
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == around.bound:
        cls = receiver or around.cls
        return cls.method(value.attr) if cls is not None else None
    if isinstance(value, (ast.Name, ast.Attribute)):
        name = file.qualified(value)
        return file.project.function_named(name) if name is not None else None
    return None
