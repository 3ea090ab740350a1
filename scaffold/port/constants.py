"""Values of expressions that the surroundings decide, as far as plain arithmetic goes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import libcst as cst

from scaffold.port.names import dotted


class Unknown:
    """No value can be told."""


UNKNOWN = Unknown()
_LITERALS: dict[str, Any] = {"True": True, "False": False, "None": None}
_COMPARE: dict[type[cst.BaseCompOp], Callable[[Any, Any], bool]] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
    cst.Is: operator.is_,
    cst.IsNot: operator.is_not,
}


def value(node: cst.BaseExpression, known: Mapping[str, Any]) -> Any:
    """Return the value of an expression, or `UNKNOWN`.

    Args:
        node: the expression, calls about the surroundings already replaced.
        known: values by name or dotted name.
    """
    if isinstance(node, (cst.Name, cst.Attribute)):
        path = dotted(node)
        if path in _LITERALS:
            return _LITERALS[path]
        return known.get(path, UNKNOWN) if path is not None else UNKNOWN
    if isinstance(node, cst.Integer):
        return int(node.value, 0)
    if isinstance(node, cst.SimpleString):
        return node.evaluated_value
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        inner = truth(node.expression, known)
        return UNKNOWN if inner is None else not inner
    if isinstance(node, cst.BooleanOperation):
        return _boolean(node, known)
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        return _comparison(node, known)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
        # The rest of a division by one is zero, whatever is divided.
        return 0 if value(node.right, known) == 1 else UNKNOWN
    return UNKNOWN


def truth(node: cst.BaseExpression, known: Mapping[str, Any]) -> bool | None:
    """Return whether a condition holds; None where that is not decided."""
    found = value(node, known)
    return None if isinstance(found, Unknown) else bool(found)


def _boolean(node: cst.BooleanOperation, known: Mapping[str, Any]) -> Any:
    sides = truth(node.left, known), truth(node.right, known)
    ends = isinstance(node.operator, cst.Or)
    if ends in sides:
        return ends
    return UNKNOWN if None in sides else not ends


def _comparison(node: cst.Comparison, known: Mapping[str, Any]) -> Any:
    target = node.comparisons[0]
    compare = _COMPARE.get(type(target.operator))
    left, right = value(node.left, known), value(target.comparator, known)
    if compare is None or isinstance(left, Unknown) or isinstance(right, Unknown):
        return UNKNOWN
    try:
        return compare(left, right)
    except TypeError:
        return UNKNOWN
