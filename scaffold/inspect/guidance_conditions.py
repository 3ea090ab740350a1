"""Conditions around guidance: what decides them, and what they imply."""

from __future__ import annotations

import ast
from itertools import islice

from scaffold.inspect.facts import Evidence
from scaffold.inspect.guidance import implied, plain_parts, scale_param
from scaffold.inspect.program.algebra import options, reach_last, truth_by_parts
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import MISSING, default_of, fold
from scaffold.inspect.program.turns import is_entry, is_turn
from scaffold.inspect.program.values import Choice, Const, Index, Item, Op, Param
from scaffold.source.values import Value

Facts = dict[int, bool]
"""Truth of the conditions on the path to a value, by ``id``."""

COMPARED: dict[str, ast.cmpop] = {
    ">": ast.Gt(), "<": ast.Lt(), ">=": ast.GtE(), "<=": ast.LtE(), "==": ast.Eq(), "!=": ast.NotEq(),
}  # fmt: skip
_MIRRORED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


class UnclearError(Exception):
    """A value that was not understood; ``at`` is where it is made."""

    at: Evidence | None = None


class Conditions:
    """Conditions of one denoising loop."""

    def __init__(self, loop: Denoising) -> None:
        self._loop = loop
        self._conditions: dict[int, Value] = {}

    def _usual(self, cond: Value) -> bool | None:
        """The truth of a condition where a request sets nothing; None where its settings or the turn decide."""
        if isinstance(cond, Op) and cond.op in ("not", "and", "or"):
            return truth_by_parts(cond, self._usual)
        if isinstance(cond, Op) and cond.op in COMPARED and len(cond.args) == 2:
            sides = [[default_of(o) if isinstance(o, Const) else MISSING for o in options(a)] for a in cond.args]
            outcomes = {fold(cond.op, [a, b]) for a in sides[0] for b in sides[1]}
            if MISSING not in (*sides[0], *sides[1]) and len(outcomes) == 1:
                return bool(outcomes.pop())
        if any(scale_param(part) is part for part in _asked(cond) if isinstance(part, Param)):
            return None
        known = default_of(cond)
        return None if known is MISSING else bool(known)

    @staticmethod
    def _is_setting(cond: Value) -> bool:
        """Whether a condition depends only on a request's sampling settings."""
        leaves = [n for n in plain_parts(cond) if not isinstance(n, Op)]
        params = [n for n in leaves if isinstance(n, Param)]
        roots = {n.root for n in params}
        return (
            bool(params)
            and roots <= {"extra_args", "sampling_params"}
            and all(isinstance(n, (Param, Const)) for n in leaves)
        )

    def _is_gate(self, cond: Value) -> bool:
        """Whether a condition depends on the loop's turn."""
        number = self._loop.number
        return any(
            is_entry(part, number) or (isinstance(part, Index) and part.loop == number) or is_turn(part, number)
            for part in _asked(cond)
        )

    def _contradicts(self, node: Value, option: Value, facts: Facts) -> bool:
        """Whether a comparison of ``node`` that holds would not if it were ``option``."""
        number = default_of(option) if isinstance(option, Const) else MISSING
        if number is MISSING:
            return False
        for cond in (self._conditions[key] for key in facts):
            if not (isinstance(cond, Op) and cond.op in _MIRRORED and len(cond.args) == 2):
                continue
            for side, other, op in ((0, 1, cond.op), (1, 0, _MIRRORED[cond.op])):
                limit = default_of(cond.args[other])
                if cond.args[side] is node and limit is not MISSING:
                    if fold(op, [number, limit]) is not facts[id(cond)]:
                        return True
        return False

    def gates(self, name: str) -> list[float]:
        """Numbers above which a setting has to be for what was read to happen, where a condition says so."""
        found: list[float] = []
        for cond in self._conditions.values():
            if isinstance(cond, Op) and cond.op in (">", "<") and len(cond.args) == 2:
                asked, limit = cond.args if cond.op == ">" else reversed(cond.args)
                number = default_of(limit) if isinstance(limit, Const) else MISSING
                if isinstance(asked, Param) and asked.key == name and isinstance(number, (int, float)):
                    found.append(float(number))
        return found

    def _with(self, facts: Facts, cond: Value, holds: bool) -> Facts:
        """What is known where a condition holds, or does not."""
        self._conditions |= {id(part): part for part in plain_parts(cond)}
        open_parts = [part for part in _joined(cond, "or" if holds else "and") if self._usual(part) is None]
        if isinstance(cond, Op) and len(open_parts) == 1 and self._usual(cond) is None:
            facts = {**facts, **implied(open_parts[0], holds)}  # the other parts are as they always are
        return {**facts, **implied(cond, holds)}


def _joined(cond: Value, op: str) -> list[Value]:
    """The parts that an operator joins, whatever is in brackets."""
    if isinstance(cond, Op) and cond.op == op:
        return [inner for arg in cond.args for inner in _joined(arg, op)]
    return [cond]


def _asked(cond: Value) -> list[Value]:
    """What a condition is made of, and what decides it."""

    def into(node: Value) -> list[Value]:
        decides = [node.cond] if isinstance(node, Choice) and node.cond is not None else []
        return [*node.parts(), *decides] if isinstance(node, (Op, Choice, Item)) else []

    return list(islice(reach_last([cond], into), 2000))
