"""Comprehensions of the loading code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from scaffold.remap.engine.execution import Frame, Stream
from scaffold.remap.engine.expressions import Expressions
from scaffold.remap.engine.tokens import UNKNOWN, Unknown


class _OpenFilterError(Exception):
    """The filter of a comprehension is not known."""


class Comprehensions(Expressions):
    """Lists, sets, tables and generators that a comprehension makes."""

    def _eval_ListComp(self, node: ast.ListComp, frame: Frame) -> Any:
        return self._comprehend(node.generators, frame, lambda inner: self.evaluate(node.elt, inner))

    def _eval_GeneratorExp(self, node: ast.GeneratorExp, frame: Frame) -> Any:
        made = self._comprehend(node.generators, frame, lambda inner: self.evaluate(node.elt, inner))
        return UNKNOWN if isinstance(made, Unknown) else Stream(made)

    def _eval_SetComp(self, node: ast.SetComp, frame: Frame) -> Any:
        made = self._comprehend(node.generators, frame, lambda inner: self.evaluate(node.elt, inner))
        return UNKNOWN if isinstance(made, Unknown) else self.make_set(made)

    def _eval_DictComp(self, node: ast.DictComp, frame: Frame) -> Any:
        pairs = self._comprehend(
            node.generators, frame, lambda inner: (self.evaluate(node.key, inner), self.evaluate(node.value, inner))
        )
        if isinstance(pairs, Unknown) or any(isinstance(key, Unknown) for key, _ in pairs):
            return UNKNOWN
        return dict(pairs)

    def _comprehend(self, generators: list[ast.comprehension], frame: Frame, make: Callable[[Frame], Any]) -> Any:
        """The items that a comprehension makes; unknown where a filter is."""
        inner = Frame(frame.scope, dict(frame.env), frame.closure, frame.bound, frame.owner)
        made: list[Any] = []

        def turn(level: int) -> None:
            if level == len(generators):
                made.append(make(inner))
                return
            generator = generators[level]
            for item in self.iterate(self.evaluate(generator.iter, inner)):
                self.assign(generator.target, item, inner)
                tests = [self.evaluate(test, inner) for test in generator.ifs]
                if any(isinstance(test, Unknown) for test in tests):
                    raise _OpenFilterError
                if all(self.truth(test) for test in tests):
                    turn(level + 1)

        try:
            turn(0)
        except _OpenFilterError:
            return UNKNOWN
        return made
