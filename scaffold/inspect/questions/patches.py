"""Latents that are patches of the image itself: how einops cuts it into tokens."""

from __future__ import annotations

import re

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Call, Const, Seq
from scaffold.source.values import External, Value

ORDER = 10
KEYS = ("detail.patches.layout", "detail.patches.side", "detail.patches.channels", "detail.patches.rank")
_NOISE = frozenset(("randn", "randn_tensor"))


def answers(program: Program) -> dict[str, Fact]:
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
