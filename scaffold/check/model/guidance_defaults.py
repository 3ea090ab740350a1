"""Guidance constants of a package: where a value is written down for ``cfg_text_scale`` and the like."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.values import known

_GUIDANCE = re.compile(r"(?:^|_)cfg(?:_|$)|guidance", re.IGNORECASE)
_READERS = {"get", "setdefault", "pop"}


class GuidanceDefault(NamedTuple):
    """A literal that stands for a guidance option.

    Attributes:
        name: the option, in lower case.
        file: where.
        node: the node that holds the value.
        value: the value.
    """

    name: str
    file: PythonFile
    node: ast.expr
    value: object


def is_guidance(name: object) -> bool:
    """Whether a name is one of classifier-free guidance."""
    return isinstance(name, str) and _GUIDANCE.search(name) is not None


def guidance_defaults(file: PythonFile) -> Iterator[GuidanceDefault]:
    """Yield the literals that a file gives to guidance options: constants, keys of dictionaries, defaults of
    parameters and fields, arguments, and fall-backs of ``get``, ``setdefault`` and ``getattr``."""
    for name, node in _pairs(file):
        if is_guidance(name) and isinstance(node, (ast.Constant, ast.Tuple, ast.List, ast.UnaryOp)):
            value = file.value(node)
            if known(value) and value is not None and not isinstance(value, bool):
                yield GuidanceDefault(name.lower(), file, node, value)


def _pairs(file: PythonFile) -> Iterator[tuple[str, ast.expr]]:
    index = file.index
    for table in index.nodes(ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    statements: list[ast.Assign | ast.AnnAssign] = [*index.nodes(ast.Assign), *index.nodes(ast.AnnAssign)]
    for statement in statements:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if statement.value is None:
                continue
            if isinstance(target, ast.Name):
                yield target.id, statement.value
            elif isinstance(target, ast.Attribute):
                yield target.attr, statement.value
            elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                yield str(target.slice.value), statement.value
    for call in index.nodes(ast.Call):
        for item in call.keywords:
            if item.arg is not None:
                yield item.arg, item.value
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        places = call.args[1:3] if name == "getattr" else call.args[:2] if name in _READERS else []
        if len(places) == 2 and isinstance(places[0], ast.Constant):
            yield str(places[0].value), places[1]
    for arguments in index.nodes(ast.arguments):
        named = [*arguments.posonlyargs, *arguments.args]
        yield from (
            (argument.arg, default)
            for argument, default in zip(reversed(named), reversed(arguments.defaults), strict=False)
        )
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if default is not None:
                yield argument.arg, default
