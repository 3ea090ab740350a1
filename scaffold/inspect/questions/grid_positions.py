"""Rotary positions over a grid: where the image's rows and columns begin."""

from __future__ import annotations

from collections.abc import Iterable

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import walk, walk_all
from scaffold.inspect.program.numeric import number
from scaffold.inspect.program.values import Call, Carried, Index, Op, Seq
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.inspect.questions.position import text_position
from scaffold.inspect.questions.prompt import encode_calls
from scaffold.source.values import Value

ORDER = 15
KEYS = ("detail.rope.grid", "detail.rope.grid_origin")
_AXES = 3


def answers(program: Program) -> dict[str, Fact]:
    """``fixed`` where three stacked grids of indices are moved by one number, whatever the text's length;
    ``sequential`` where rows and columns count on behind the text.

    A pipeline with another place for images that a text refers to has both; no more than likely then.
    """
    denoiser = find_denoiser(program)
    if denoiser is None:
        return {}
    given = denoiser.record.named
    stop = {id(program.denoising.sample)} if program.denoising is not None else set()
    behind_text = _behind_text(program, walk_all(given.values(), stop))
    if behind_text:
        return behind_text
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


def _behind_text(program: Program, given: Iterable[Value]) -> dict[str, Fact]:
    """``sequential``: three stacked lists that begin with the text's length and count on from there.

    Each has the same entries: markers, which all three give one position, and the tokens of the image between them,
    to which the second and the third add an index. What stands behind the image counts on from its longer side.
    """
    encoded = [r.result for r in encode_calls(program)]
    for node in given:
        lists = [_counted(axis) for axis in _stacked(node)]
        if len(lists) != _AXES or any(not entries for entries in lists) or len({len(e) for e in lists}) != 1:
            continue
        first = lists[0][0]
        if all(entries[0] is first for entries in lists) and text_position(first, encoded) and _counts_on(first, lists):
            return {"detail.rope.grid": fact("sequential", [node.at, first.at])}
    return {}


def _counts_on(first: Value, lists: list[list[Value]]) -> bool:
    """Whether entries of three axes count on from ``first``, around one entry that is a grid."""
    text = 1000.0
    grid_at: int | None = None
    for place, entries in enumerate(zip(*lists, strict=True)):
        indices = [[n for n in walk(e) if isinstance(n, Index)] for e in entries]
        pairs = []
        for entry, found in zip(entries, indices, strict=True):
            low, high = (number(entry, {id(first): text, **{id(n): i for n in found}}) for i in (0.0, 3.0))
            if low is None or high is None:
                return False
            pairs.append((low, high - low))
        base, moves = pairs[0][0], [move for _, move in pairs]
        if any(start != base for start, _ in pairs):
            return False
        if moves == [0, 3, 3] and grid_at is None and base == text + place:
            rows, columns = indices[1][0], indices[2][0]
            if len(indices[1]) != 1 or len(indices[2]) != 1 or rows.loop >= columns.loop:
                return False  # not row by row
            grid_at = place
        elif moves != [0, 0, 0]:
            return False
        elif grid_at is None:
            if base != text + place:
                return False
        else:
            sides = [n for n in walk(entries[0]) if isinstance(n, Call) and n.name == "max" and len(n.args) == 2]
            longer = number(sides[0], {}) if len(sides) == 1 else None
            if longer is None or base != text + place - 1 + longer:
                return False
    return grid_at is not None


def _stacked(value: Value) -> list[Value]:
    """What a stack is made of."""
    stacks = isinstance(value, Call) and value.name == "stack" and value.args and isinstance(value.args[0], Seq)
    return list(value.args[0].items) if stacks else []  # type: ignore[attr-defined]


def _counted(axis: Value) -> list[Value]:
    """The entries of a list that a tensor is made of."""
    held = axis.args[0] if isinstance(axis, Call) and axis.name == "tensor" and axis.args else axis
    return held.items if isinstance(held, Seq) else []


def _start(value: Value | None) -> Value | None:
    """Return the value of a variable before the outermost loop that updates it."""
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
