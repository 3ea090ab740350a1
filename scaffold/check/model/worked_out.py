"""What a function makes of given values, worked out from its text: plain Python and arithmetic of small tensors.

Nothing of the package is run. What lies outside of the tree answers `OPAQUE`, and so does everything made of it; where
that decides which way the text goes on, the work ends with `NotPlainError`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from scaffold.bounded import Budget
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.name_functions import NotPlainError
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.worked_calls import Frame
from scaffold.check.model.worked_values import OPAQUE, Bound, BrokenError, External, RefusedError, Stub

MOST = 20_000
__all__ = ["OPAQUE", "Bound", "External", "NotPlainError", "RefusedError", "Stub", "Worked"]


class Worked:
    """One piece of work.

    Args:
        answers: last part of a dotted or method name -> what a call of it answers, given the evaluated arguments.
        lenient: whether what cannot be worked out is opaque too, instead of ending the work: for questions about what
            a text does on its way, not about what it answers.

    Attributes:
        entered: functions of the tree whose text was followed, in order.
        quotients: divisions of arrays, with the function around each.
    """

    def __init__(self, answers: dict[str, Callable[..., Any]] | None = None, lenient: bool = False) -> None:
        self.answers, self.lenient = answers or {}, lenient
        self.entered: dict[FunctionModel, None] = {}
        self.quotients: dict[ast.BinOp, FunctionModel] = {}
        self.budget = Budget(MOST, NotPlainError, 50_000)

    def generates(self, file: PythonFile, node: ast.AST) -> bool:
        """Whether a function yields what it answers."""
        inside = [*file.index.nodes(ast.Yield, node), *file.index.nodes(ast.YieldFrom, node)]
        return bool(inside) and any(inner in inside for inner in file.index.own(node))

    def call(self, bound: Bound | FunctionModel, *values: Any, **options: Any) -> Any:
        """Return what a function answers.

        Raises:
            NotPlainError: that cannot be worked out.
            RefusedError: the text raises.
        """
        if isinstance(bound, FunctionModel):
            bound = Bound(bound)
        try:
            return self.follow(bound, list(values), options, 0)
        except (TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError, RecursionError, BrokenError):
            raise NotPlainError from None
        except (KeyError, IndexError, StopIteration):
            raise RefusedError from None

    def follow(self, bound: Bound, values: list[Any], options: dict[str, Any], depth: int) -> Any:
        """Return what a function answers, called from the text."""
        function = bound.function
        self.entered.setdefault(function)
        names: dict[str, Any] = {}
        if function.bound is not None:
            names[function.bound] = bound.receiver if bound.receiver is not None else bound.cls or function.cls
        positional = function.positional
        if len(values) > len(positional) and function.vararg is None:
            raise NotPlainError
        names.update(zip(positional, values, strict=False))
        if function.vararg is not None:
            names[function.vararg] = tuple(values[len(positional) :])
        extra = {name: value for name, value in options.items() if name not in function.parameters}
        names.update({name: value for name, value in options.items() if name in function.parameters})
        if function.kwarg is not None:
            names[function.kwarg] = extra
        elif extra:
            raise NotPlainError
        frame = Frame(self, function, bound.cls or function.cls, names, depth + 1)
        for name in function.parameters:
            default = function.default(name)
            if name not in names:
                names[name] = frame.value(default) if default is not None else OPAQUE
        return frame.run(function.node)
