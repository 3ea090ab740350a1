"""Which way guidance goes where the pipeline itself settles it, whatever a request says."""

from __future__ import annotations

from collections.abc import Callable

from scaffold.inspect.guidance import USER_ROOTS, plain_parts, truth_by_parts
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.values import Choice, Op, Param
from scaffold.source.values import Value

Replaced = Callable[[Value], bool]
"""Tells whether a value stands over what a request says."""


def settled_way(output: Value, replaced: Replaced) -> Value:
    """The prediction without the alternatives that no request can lead to."""
    for _ in range(12):
        if not (isinstance(output, Choice) and output.cond is not None and len(output.options) == 2):
            break
        holds = _settled(output.cond, replaced)
        if holds is None:
            break
        output = output.options[0 if holds else 1]
    return output


def _settled(cond: Value, replaced: Replaced) -> bool | None:
    """The truth of a condition that rests on replaced settings alone, or on one part that decides it."""
    if isinstance(cond, Op) and cond.op in ("not", "and", "or"):
        return truth_by_parts(cond, lambda part: _settled(part, replaced))
    asked = [n for n in plain_parts(cond) if isinstance(n, Param) and n.root in USER_ROOTS]
    if not asked or not all(replaced(param) for param in asked):
        return None
    known = default_of(cond)
    return None if known is MISSING else bool(known)
