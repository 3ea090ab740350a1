"""Finds every guidance formula for a request with reference images: which scales are on decides the predictions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from scaffold.inspect.guidance import truth
from scaffold.inspect.guidance_conditions import COMPARED, Facts, UnclearError
from scaffold.inspect.guidance_expression import Writer
from scaffold.inspect.program.algebra import is_none, options
from scaffold.inspect.program.conditions import params_of
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Choice, Op
from scaffold.source.values import Value

MOST = 64
"""The most formulas that are followed."""
_REQUEST = frozenset({"sampling_params", "extra_args", "prompt", "media", "request"})


@dataclass(frozen=True)
class Way:
    """One way: the expression over ``p0``, ``p1``…, and the settings for which it is taken, where they alone say so."""

    tree: ast.expr
    when: ast.expr | None


def find_ways(loop: Denoising, calls: list[CallRecord]) -> tuple[list[Way], Writer]:
    """Return the ways in the order in which the source asks for them, and who wrote them.

    Raises:
        UnclearError: one of them was not understood, or there are too many.
    """
    assert loop.model_output is not None
    writer = _Following(loop, calls)
    return list(writer.ways(loop.model_output)), writer


class _Following(Writer):
    """Writes a combination as often as a condition of the request goes either way."""

    def __init__(self, loop: Denoising, calls: list[CallRecord]) -> None:
        super().__init__(loop, calls)
        self._script: list[bool] = []
        self._taken: dict[int, tuple[Value, bool]] = {}

    def ways(self, output: Value) -> Iterator[Way]:
        """Yield each way once: the conditions hold first, the last of them first does not."""
        for _ in range(MOST):
            self._taken = {}
            tree = self.tensor(output, {})
            holding = [cond for cond, holds in self._taken.values() if holds]
            yield Way(tree.operand if isinstance(tree, ast.UnaryOp) else tree, self._when(holding))
            script = [holds for _, holds in self._taken.values()]
            while script and not script[-1]:
                script.pop()
            if not script:
                return
            self._script = [*script[:-1], False]
        raise UnclearError

    def _choice(self, node: Choice, facts: Facts) -> ast.expr:
        cond, turned = _deciding(node.cond)
        if cond is None or len(node.options) != 2 or not any(p.root in _REQUEST for p in params_of(cond)):
            return super()._choice(node, facts)
        holds = self._taken[id(cond)][1] if id(cond) in self._taken else truth(cond, facts)
        if holds is None:
            place = len(self._taken)
            holds = self._script[place] if place < len(self._script) else True
            self._taken[id(cond)] = cond, holds
        return self.tensor(node.options[1 if holds is turned else 0], self._with(facts, cond, holds))

    def _when(self, holding: list[Value]) -> ast.expr | None:
        """What settings must be where conditions hold; what else they ask for is left out."""
        asked = [self._comparison(part) for cond in holding for part in _parts(cond)]
        found = [part for part in asked if part is not None]
        return None if not found else found[0] if len(found) == 1 else ast.BoolOp(ast.And(), found)

    def _comparison(self, cond: Value) -> ast.expr | None:
        if not (isinstance(cond, Op) and cond.op in COMPARED and len(cond.args) == 2):
            return None
        facts = self._with({}, cond, True)
        try:
            left, right = (self.scalar(arg, facts) for arg in cond.args)
        except UnclearError:
            return None
        return ast.Compare(left, [COMPARED[cond.op]], [right])


def _deciding(cond: Value | None) -> tuple[Value | None, bool]:
    """The condition under which something was made that another asks for, and whether that holds where it does not.

    ``uncond is not None`` asks what decided about ``uncond = encode(…) if scale > 1 else None``.
    """
    if isinstance(cond, Op) and cond.op in ("is", "isnot") and len(cond.args) == 2 and is_none(cond.args[1]):
        made = cond.args[0]
        if isinstance(made, Choice) and made.cond is not None and len(made.options) == 2:
            nothing = [is_none(option) for option in made.options]
            if nothing[0] is not nothing[1]:
                return made.cond, nothing[0] is (cond.op == "isnot")
    return cond, False


def _parts(cond: Value) -> list[Value]:
    """The conditions that hold where one does."""
    if isinstance(cond, Op) and cond.op == "and":
        return [part for arg in cond.args for part in _parts(arg)]
    return [] if isinstance(cond, Choice) and len(options(cond)) > 1 else [cond]
