"""What a function gives back, of several ``return`` statements under conditions."""

from __future__ import annotations

from scaffold.inspect.program.algebra import join
from scaffold.inspect.program.trace import Conditions
from scaffold.inspect.program.values import Op
from scaffold.source.values import Evidence, Value

Return = tuple[Value, Conditions]
MAX_WAYS = 8
"""How many statements are put in order by their conditions."""


def merged(returns: list[Return], at: Evidence | None) -> Value:
    """Return the alternatives, with the conditions that choose between them where these are plain."""
    if len(returns) == 2:
        return join([value for value, _ in returns], _all_of(returns[0][1]), at)
    nested = _nested(returns, at) if len(returns) <= MAX_WAYS else None
    return nested if nested is not None else join([value for value, _ in returns], None, at)


def _all_of(path: Conditions) -> Value | None:
    """The one condition under which all of several go the given way."""
    parts = [cond if truth else Op("not", [cond], at=cond.at) for cond, truth in path]
    return Op("and", parts, at=parts[-1].at) if len(parts) > 1 else parts[0] if parts else None


def _nested(returns: list[Return], at: Evidence | None) -> Value | None:
    """Nested alternatives for ``if a: return x``, ``if b: return y``, ``return z``; None where it is not so plain."""
    (value, path), rest = returns[0], returns[1:]
    if not rest:
        return value
    if len(path) != 1 or path[0][1] is not True or any(p[:1] != ((path[0][0], False),) for _, p in rest[:-1]):
        return None
    last = rest[-1][1]
    if last and last[:1] != ((path[0][0], False),):
        return None
    behind = _nested([(v, p[1:]) for v, p in rest], at)
    return join([value, behind], path[0][0], at) if behind is not None else None
