"""What a request has to bring: a pipeline refuses one in which it is absent."""

from __future__ import annotations

from scaffold.inspect.program.algebra import is_none
from scaffold.inspect.program.conditions import params_of
from scaffold.inspect.program.values import Choice, Const, Map, Op, Param, Seq
from scaffold.source.values import Value

ROOTS = frozenset({"prompt", "media", "extra_args"})
# The text itself, which every request has.
_TEXT = ("", "prompt")

Alternatives = tuple[tuple[str, str], ...]


def demanded_by(refusal: Value) -> tuple[Alternatives, ...]:
    """Return what must be there for a condition that refuses a request not to hold; nothing where it asks otherwise.

    Args:
        refusal: the condition under which a request is refused.

    Returns:
        Groups of root and key: of each group one has to be there.
    """
    if isinstance(refusal, Op) and refusal.op == "or":
        return tuple(group for part in refusal.args for group in demanded_by(part))
    if isinstance(refusal, Op) and refusal.op == "and":
        parts = [demanded_by(part) for part in refusal.args]
        if all(len(part) == 1 for part in parts):
            return (tuple(key for part in parts for key in part[0]),)
        return ()
    if isinstance(refusal, Op) and refusal.op == "not" and isinstance(refusal.args[0], Choice):
        return _leading_to_nothing(refusal.args[0])
    group = _absent(refusal)
    return (group,) if group else ()


def _leading_to_nothing(found: Choice) -> tuple[Alternatives, ...]:
    """What has to be there so that a choice is not the side on which there is nothing, as a helper returns it."""
    if found.cond is None or len(found.options) != 2:
        return ()
    first, second = (_is_nothing(option) for option in found.options)
    if first is second:
        return ()
    return demanded_by(found.cond if first else _negated(found.cond))


def _is_nothing(value: Value) -> bool:
    if isinstance(value, Map):
        return value.exact and not value.items and not value.unkeyed
    if isinstance(value, Seq):
        return value.exact and not value.items and not value.appends
    return isinstance(value, Const) and not value.value


def _negated(cond: Value) -> Value:
    if isinstance(cond, Op) and cond.op in ("is", "isnot"):
        return Op("isnot" if cond.op == "is" else "is", cond.args)
    return cond.args[0] if isinstance(cond, Op) and cond.op == "not" else Op("not", [cond])


def _absent(cond: Value) -> Alternatives:
    """The places of which all are empty where a condition tests for None, or for something that is not there."""
    if not isinstance(cond, Op) or not cond.args:
        return ()
    for_none = cond.op == "is" and len(cond.args) == 2 and is_none(cond.args[1])
    if not for_none and not (cond.op == "not" and isinstance(cond.args[0], Param)):
        return ()
    params = params_of(cond.args[0])
    if not params or any(param.root not in ROOTS or param.key in _TEXT for param in params):
        return ()
    return tuple(dict.fromkeys((param.root, param.key) for param in params))
