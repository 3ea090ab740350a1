"""Rotary positions over a grid: where the image's rows and columns begin."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import walk, walk_all
from scaffold.inspect.program.numeric import number
from scaffold.inspect.program.values import Call, Carried, Op, Seq
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.source.values import Value

ORDER = 15
KEYS = ("detail.rope.grid", "detail.rope.grid_origin")
_AXES = 3


def answers(program: Program) -> dict[str, Fact]:
    """``fixed`` where three stacked grids of indices are moved by one number, whatever the text's length.

    A pipeline with another place for images that a text refers to has both; no more than likely then.
    """
    denoiser = find_denoiser(program)
    if denoiser is None:
        return {}
    given = denoiser.record.bound or denoiser.record.kwargs
    moved = [node for node in walk_all(given.values()) if isinstance(node, Op) and _is_moved(node)]
    origins: dict[float, Op] = {}
    for node in moved:
        starts = {id(c): v for c in walk(node) if isinstance(c, Carried) and (v := number(_start(c), {})) is not None}
        grid = next(n for n in walk(node) if _is_grid(n))
        origin = number(node, {**starts, id(grid): 0.0})
        if origin:
            origins[origin] = node
    if len(origins) != 1:
        return {}
    origin, node = next(iter(origins.items()))
    begins = [start for c in walk(node) if isinstance(c, Carried) and (start := _start(c)) is not None]
    places = [node.at, *(start.at for start in begins if number(start, {}) == origin)]
    return {
        "detail.rope.grid": fact("fixed", places, "likely"),
        "detail.rope.grid_origin": fact(int(origin), places, "likely"),
    }


def _start(value: Value | None) -> Value | None:
    """What a variable is before the outermost loop that updates it."""
    while isinstance(value, Carried):
        value = value.init
    return value


def _is_grid(value: Value) -> bool:
    """Time, row and column indices of every token, stacked."""
    if not (isinstance(value, Call) and value.name == "stack" and value.args and isinstance(value.args[0], Seq)):
        return False
    axes = value.args[0].items
    return len(axes) == _AXES and all(any(isinstance(n, Call) and n.name == "arange" for n in walk(a)) for a in axes)


def _is_moved(value: Op) -> bool:
    """A sum that a grid is a term of."""
    while isinstance(value, Op) and value.op == "+":
        if any(_is_grid(a) for a in value.args):
            return True
        value = value.args[0]  # type: ignore[assignment]
    return False
