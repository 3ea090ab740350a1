"""How large the initial noise is, as a multiple of unit noise."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.turns import without_reshaping
from scaffold.inspect.program.values import Attr, Call, Conf, Op, Param
from scaffold.source.values import Value

ORDER = 11
KEYS = ("detail.latents.noise_scale",)
_NOISE = frozenset(("randn", "randn_tensor", "randn_like"))
_KEEPING = frozenset(("to", "float", "contiguous", "clone", "cpu"))


def answers(program: Program) -> dict[str, Fact]:
    """The product of the numbers that noise is multiplied with before the first turn; unknown where one is none."""
    loop = program.denoising
    if loop is None or loop.sample is None or loop.sample.init is None:
        return {}
    found = [_scale(option) for option in options(loop.sample.init)]
    first = found[0]
    if first is None or any(f is None or f[0] != first[0] for f in found):
        return {}
    return {KEYS[0]: fact(first[0], first[1], "certain" if all(f is not None and f[2] for f in found) else "likely")}


def _scale(value: Value) -> tuple[float, list[Evidence | None], bool] | None:
    """Factor of the noise in a value, the places that say so, and whether it is the same for everybody."""
    factor, places, fixed = 1.0, list[Evidence | None](), True
    for _ in range(16):
        value = without_reshaping(value)
        if isinstance(value, Call) and value.name in _NOISE:
            return factor, [*places, value.at], fixed
        if isinstance(value, Call) and isinstance(value.func, Attr) and value.name in _KEEPING:
            value = value.func.base
        elif isinstance(value, Op) and value.op in ("*", "/") and len(value.args) == 2:
            first, second = value.args
            left, right = default_of(first), default_of(second)
            if isinstance(right, (int, float)) and not isinstance(right, bool):
                factor = factor * right if value.op == "*" else factor / right
                value, given = first, second
            elif value.op == "*" and isinstance(left, (int, float)) and not isinstance(left, bool):
                factor, value, given = factor * left, second, first
            else:
                return None
            places += [given.at]
            fixed = fixed and not any(isinstance(n, (Conf, Param)) for n in walk(given))
        else:
            return None
    return None
