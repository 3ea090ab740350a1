"""Evaluation of comprehensions."""

from __future__ import annotations

import ast

from scaffold.inspect.program.core import INLINE_BUDGET, Frame
from scaffold.inspect.program.expressions import Expressions
from scaffold.inspect.program.values import (
    MOST_ITEMS,
    Const,
    Elem,
    Map,
    Seq,
    Value,
)

COMPREHENSION_BUDGET = 10 * INLINE_BUDGET


class Comprehensions(Expressions):
    """Comprehensions, row by row where the items are known."""

    def _comprehension(
        self, generators: list[ast.comprehension], results: list[ast.expr], frame: Frame
    ) -> tuple[list[list[Value]], bool]:
        """Rows of result values, and whether they are exactly all."""
        scope = Frame(frame.module, frame.node, frame.owner, frame.bound, dict(frame.env), frame.closure)
        rows: list[list[Value]] = []
        exact = self._generate(generators, 0, results, scope, rows)
        return rows, exact

    def _generate(
        self,
        generators: list[ast.comprehension],
        index: int,
        results: list[ast.expr],
        scope: Frame,
        rows: list[list[Value]],
    ) -> bool:
        if len(rows) > MOST_ITEMS:
            return False
        if index == len(generators):
            rows.append([self.evaluate(r, scope) for r in results])
            return True
        generator = generators[index]
        source = self.evaluate(generator.iter, scope)
        known = self.iterate(source)
        exact = known is not None and len(known) <= 32 and self.steps < COMPREHENSION_BUDGET
        turns = known if known is not None and exact else [Elem(source, -1, at=self.at(generator.iter, scope))]
        if not exact and known:
            turns = known[:1]
        for turn in turns:
            self.assign(generator.target, turn, scope)
            pushed = 0
            keep = True
            for test in generator.ifs:
                cond = self.evaluate(test, scope)
                truth = self.decide(cond)
                if truth is False:
                    keep = False
                    break
                if truth is None:
                    exact = False
                    self.conditions.append((cond, True))
                    pushed += 1
            if keep:
                self.depth += 0 if exact else 1
                exact = self._generate(generators, index + 1, results, scope, rows) and exact
                self.depth -= 0 if exact else 1
            del self.conditions[len(self.conditions) - pushed :]
        return exact

    def _eval_ListComp(self, node: ast.ListComp, frame: Frame) -> Value:
        return self._collect(node, "list", node.generators, node.elt, frame)

    def _eval_SetComp(self, node: ast.SetComp, frame: Frame) -> Value:
        return self._collect(node, "set", node.generators, node.elt, frame)

    def _eval_GeneratorExp(self, node: ast.GeneratorExp, frame: Frame) -> Value:
        return self._collect(node, "list", node.generators, node.elt, frame)

    def _collect(
        self, node: ast.expr, kind: str, generators: list[ast.comprehension], elt: ast.expr, frame: Frame
    ) -> Value:
        depth = self.depth
        rows, exact = self._comprehension(generators, [elt], frame)
        self.depth = depth
        return Seq(kind, [row[0] for row in rows], exact, self.depth, at=self.at(node, frame))

    def _eval_DictComp(self, node: ast.DictComp, frame: Frame) -> Value:
        depth = self.depth
        rows, exact = self._comprehension(node.generators, [node.key, node.value], frame)
        self.depth = depth
        result = Map({}, exact, self.depth, at=self.at(node, frame))
        for key, value in rows:
            if isinstance(key, Const) and key.value.__hash__ is not None:
                result.items[key.value] = value
            else:
                result.exact = False
                result.items.setdefault("*", value)
        return result
