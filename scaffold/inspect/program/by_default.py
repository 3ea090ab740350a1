"""The truth of conditions, and the alternatives of values, for a request with default settings."""

from __future__ import annotations

from scaffold.inspect.program.algebra import asks_for_none, options, reach, truth_by_parts
from scaffold.inspect.program.conditions import decide, none_ness
from scaffold.inspect.program.numeric import MISSING, default_of, fold
from scaffold.inspect.program.values import Choice, Map, Op
from scaffold.source.values import Value

_COMPARISONS = frozenset((">", "<", ">=", "<=", "==", "!="))


def by_default(cond: Value, depth: int = 0) -> bool | None:
    """Return the truth of a condition with every setting at its default; None if unknown."""
    decided = decide(cond)
    if decided is not None or depth > 12:
        return decided
    if isinstance(cond, Map) and cond.exact and cond.maybe == set(cond.items) == cond.unasked:
        return False
    if isinstance(cond, Op) and cond.op in ("not", "and", "or"):
        return truth_by_parts(cond, lambda part: by_default(part, depth + 1))
    if isinstance(cond, Op) and cond.op in _COMPARISONS and len(cond.args) == 2:
        outcomes = set(_outcomes(cond))
        return outcomes.pop() if len(outcomes) == 1 else None
    if asks_for_none(cond):
        nones = {_is_none(o) for o in taken_by_default(cond.args[0])}
        known_one = nones.pop() if len(nones) == 1 else None
        return known_one if known_one is None or cond.op == "is" else not known_one
    known = default_of(cond)
    return None if known is MISSING else bool(known)


def leans(cond: Value) -> bool | None:
    """Return the truth of a condition for most of the values that configuration files may hold."""
    decided = by_default(cond)
    if decided is not None or not (isinstance(cond, Op) and cond.op in _COMPARISONS and len(cond.args) == 2):
        return decided
    outcomes = _outcomes(cond)
    holding = sum(o is True for o in outcomes)
    return None if None in outcomes or 2 * holding == len(outcomes) else 2 * holding > len(outcomes)


def _outcomes(cond: Op) -> list[bool | None]:
    """The results of a comparison for each pair of alternatives; None where a side is not known."""
    left, right = ([default_of(o) for o in taken_by_default(arg)] for arg in cond.args)
    folded = [MISSING if MISSING in (a, b) else fold(cond.op, [a, b]) for a in left for b in right]
    return [None if result is MISSING else bool(result) for result in folded]


def _is_none(value: Value) -> bool | None:
    known = default_of(value)
    return none_ness(value) if known is MISSING else known is None


def taken_by_default(value: Value) -> list[Value]:
    """Return the alternatives of a value that default settings allow."""

    def kept(node: Value) -> list[Value]:
        if not isinstance(node, Choice):
            return []
        truth = by_default(node.cond) if node.cond is not None and len(node.options) == 2 else None
        return node.options if truth is None else [node.options[0 if truth else 1]]

    return [node for node in reach([value], kept) if not isinstance(node, Choice)] or options(value)
