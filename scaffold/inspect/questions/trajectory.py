"""Whether the pipeline keeps the steps it takes, and where they come out."""

from __future__ import annotations

from collections.abc import Iterator

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import Search, is_none, options
from scaffold.inspect.program.values import Call, Const, Item, Map, Obj, Seq
from scaffold.source.values import Value

ORDER = 6
KEYS = ("answers.trajectory.recorded", "answers.trajectory.fields")
_MAX_DEPTH = 6


def answers(program: Program) -> dict[str, Fact]:
    loop = program.denoising
    if loop is None or program.result is None:
        return {}
    fields: dict[str, Evidence | None] = {}
    # A list that a turn fills to make the next sample is not a record of the turns.
    carried = [id(v) for v in loop.loop.carried.values()]
    is_recorded = Search(
        lambda n: isinstance(n, Seq) and any(turn == loop.number for _, turn in n.appends), carried, _is_one_turn
    )
    for option in options(program.result):
        for path, leaf in _leaves(option, "", 0):
            if is_recorded(leaf):
                fields.setdefault(path, leaf.at)
    kept = [s.at for s in _recorded_lists(program, loop.number)]
    facts = {"answers.trajectory.recorded": fact(bool(fields), list(fields.values()) or kept or [loop.loop.at])}
    facts["answers.trajectory.fields"] = fact(list(fields), list(fields.values()) or [loop.loop.at])
    return facts


def _is_one_turn(value: Value) -> bool:
    """Whether a value is the first or the last of what the turns put into a list."""
    if not (isinstance(value, Item) and isinstance(value.key, Const) and value.key.value in (0, -1)):
        return False
    return any(isinstance(o, Seq) and o.appends for o in options(value.base))


def _leaves(value: Value, path: str, depth: int) -> Iterator[tuple[str, Value]]:
    """The outputs of a result by dotted path; dictionaries are opened."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, Obj):
        for name, item in value.kwargs.items():
            yield from _leaves(item, f"{path}.{name}" if path else name, depth + 1)
        return
    if isinstance(value, Map):
        for key, item in value.items.items():
            if isinstance(key, str):
                yield from _leaves(item, f"{path}.{key}" if path else key, depth + 1)
        return
    parts = [o for o in options(value) if not is_none(o)]
    if len(parts) == 1 and parts[0] is value:
        yield path, value
        return
    for part in parts:
        yield from _leaves(part, path, depth + 1)


def _recorded_lists(program: Program, loop: int) -> list[Seq]:
    found = []
    for record in program.trace.calls:
        if isinstance(record.result, Call) and record.method == "stack":
            found += [n for a in record.args for n in options(a) if isinstance(n, Seq) and n.appends]
    return [s for s in found if any(number == loop for _, number in s.appends)]
