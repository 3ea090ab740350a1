"""What the parameters of a function or method are given by one call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.port.slicing import UnclearError


def arguments_of(call: ast.Call, method: ast.FunctionDef, *, bound: bool = True) -> Iterator[tuple[str, ast.expr]]:
    """Yield a call's parameters and what they are given.

    Raises:
        UnclearError: that cannot be told.
    """
    static = any(ast.unparse(decorator) == "staticmethod" for decorator in method.decorator_list)
    if (method.decorator_list and not static) or method.args.vararg or method.args.kwarg or method.args.posonlyargs:
        raise UnclearError(method.name)
    parameters = method.args.args[1:] if bound and not static else method.args.args
    if any(isinstance(given, ast.Starred) for given in call.args) or any(k.arg is None for k in call.keywords):
        raise UnclearError(method.name)
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    defaults = dict(zip([a.arg for a in method.args.args][::-1], method.args.defaults[::-1], strict=False))
    only = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
    defaults |= {entry.arg: default for entry, default in only if default is not None}
    for index, parameter in enumerate([*parameters, *method.args.kwonlyargs]):
        at = index if index < len(parameters) and index < len(call.args) else None
        value = call.args[at] if at is not None else named.get(parameter.arg, defaults.get(parameter.arg))
        if value is None:
            raise UnclearError(parameter.arg)
        yield parameter.arg, value
