"""Latents that are patches of the image itself: how einops cuts it into tokens."""

from __future__ import annotations

import re

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Call, Const, Seq
from scaffold.source.values import External, Value

ORDER = 10
KEYS = (
    "detail.patches.layout",
    "detail.patches.side",
    "detail.patches.channels",
    "detail.patches.rank",
    "detail.image.sizes",
    "detail.image.sizes_constant",
    "detail.image.sizes_module",
)

_NOISE = frozenset(("randn", "randn_tensor"))


def answers(program: Program) -> dict[str, Fact]:
    """Return the facts of ``KEYS``."""
    return {**_patches(program), **_image_sizes(program)}


def _patches(program: Program) -> dict[str, Fact]:
    """Layout in the notation of einops, with p rows and q columns in a patch, from noise shaped like the image."""
    loop = program.denoising
    if loop is None or loop.sample is None or loop.sample.init is None:
        return {}
    for node in walk(loop.sample.init):
        if isinstance(node, Call) and node.name == "rearrange" and len(node.args) == 2:
            found = _read(node)
            if found is not None:
                return found
    return {}


def _read(node: Call) -> dict[str, Fact] | None:
    """The facts of ``rearrange(noise, "b c (h p) (w q) -> b (h w) (c p q)", p=…, q=…)``."""
    pattern = default_of(node.args[1])
    shape = _shape(node.args[0])
    if not isinstance(pattern, str) or shape is None or not isinstance(node.func, External):
        return None
    sides = [_axes(side) for side in pattern.split("->")]
    if len(sides) != 2 or [len(axis) for axis in sides[0]] != [1, 1, 2, 2]:
        return None
    (batch,), (channel,), (row, row_in), (column, column_in) = sides[0]
    names = {row: "h", column: "w", row_in: "p", column_in: "q", channel: "c"}
    tokens = sides[1]
    if len(tokens) != 3 or tokens[0] != [batch] or tokens[1] != [row, column]:
        return None
    if set(tokens[2]) != {channel, row_in, column_in}:
        return None
    side, other = (default_of(node.kwargs.get(name)) for name in (row_in, column_in))
    places = [node.at, node.kwargs[row_in].at if row_in in node.kwargs else None]
    found = {"detail.patches.rank": fact(len(tokens), [node.at])}
    inner = " ".join(names[name] for name in tokens[2])
    found["detail.patches.layout"] = fact(f"(h w) ({inner}) -> c (h p) (w q)", [node.at])
    if type(side) is int and side == other:
        found["detail.patches.side"] = fact(side, places)
    channels = default_of(shape[1])
    if type(channels) is int:
        found["detail.patches.channels"] = fact(channels, [shape[1].at, node.at])
    return found


def _axes(side: str) -> list[list[str]]:
    """Names on each axis: ``b (h w)`` gives ``[[b], [h, w]]``."""
    return [part.strip("()").split() for part in re.findall(r"\([^)]*\)|\S+", side)]


def _shape(value: Value) -> list[Value] | None:
    """The shape of the only noise that a value is made from, where it has four axes."""
    for node in walk(value):
        if isinstance(node, Call) and node.name in _NOISE and node.args:
            given = node.args[0]
            if isinstance(given, Seq) and given.exact and len(given.items) == 4:
                return given.items
            if isinstance(given, Const):
                return node.args if len(node.args) == 4 else None
    return None


# The only sizes that images can have, where the pipeline takes the nearest of a table.


def _image_sizes(program: Program) -> dict[str, Fact]:
    """``[height, width]`` of each entry of the table, and the module and the name under which it stands.

    Established where height and width of the initial noise are numbers out of one table of pairs, and the request
    asked for a size.
    """
    loop = program.denoising
    asked = {key for (root, key) in program.trace.reads if root == "sampling_params"} & {"height", "width"}
    if loop is None or loop.sample is None or loop.sample.init is None or len(asked) != 2:
        return {}
    for node in walk(loop.sample.init):
        if isinstance(node, Call) and node.name in _NOISE and node.args and isinstance(node.args[0], Seq):
            height, width = (_numbers(side) for side in node.args[0].items[-2:])
            if height and width and (found := _table(program, height, width)) is not None:
                return found
    return {}


def _numbers(value: Value) -> list[Const]:
    """All values of a side; empty where one of them is not a number."""
    found = [o for o in options(value) if isinstance(o, Const) and type(o.value) is int]
    return found if len(found) == len(options(value)) else []


def _table(program: Program, height: list[Const], width: list[Const]) -> dict[str, Fact] | None:
    module = program.cls.module
    for name, node in module.definitions.items():
        value = program.scopes.lookup(module, name)
        pairs = [_pair(item) for item in value.items] if isinstance(value, Seq) else []
        if len(pairs) < 2 or not all(pairs):
            continue
        columns = [{id(pair[place]) for pair in pairs} for place in (0, 1)]
        given = {id(n) for n in height}, {id(n) for n in width}
        # The very numbers of a column, not equal ones: a table of both orientations holds the same numbers in both.
        if given[0] <= columns[0] and given[1] <= columns[1]:
            sizes = [[first.value, second.value] for first, second in pairs]
        elif given[0] <= columns[1] and given[1] <= columns[0]:
            sizes = [[second.value, first.value] for first, second in pairs]
        else:
            continue
        place = Evidence(module.file, node.lineno)
        return {
            "detail.image.sizes": fact(sizes, [place]),
            "detail.image.sizes_constant": fact(name, [place]),
            "detail.image.sizes_module": fact(module.name, [place]),
        }
    return None


def _pair(value: Value) -> tuple[Const, ...]:
    """The two whole numbers of an entry; empty where it is something else."""
    items = tuple(i for i in value.items if isinstance(i, Const)) if isinstance(value, Seq) else ()
    return items if len(items) == 2 and all(type(i.value) is int for i in items) else ()
