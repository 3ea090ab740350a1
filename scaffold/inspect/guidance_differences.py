"""Differences of predictions that no recognised combination takes in."""

from __future__ import annotations

from scaffold.inspect.guidance import Guidance, number_of, region_parts
from scaffold.inspect.program.algebra import depends, is_none, options, same
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.values import Call, Item, Op
from scaffold.source.values import Value


def uncounted(loop: Denoising, region: list[Value], found: list[Guidance]) -> list[Value]:
    """The factor of each difference in which a prediction stands that no combination counts; itself without one."""
    counted = [o for g in found for side in (g.cond, g.uncond) for o in options(side)]
    factors: list[Value] = []
    for node in region:
        if not (isinstance(node, Op) and node.op == "-" and len(node.args) == 2):
            continue
        sides = [[o for o in options(arg) if not is_none(o)] for arg in node.args]
        if not all(side and all(_is_prediction(o, loop) for o in side) for side in sides):
            continue
        if any(not any(same(o, c) for o in side for c in counted) for side in sides):
            around = [n for n in region if isinstance(n, Op) and n.op == "*" and any(a is node for a in n.args)]
            factors += [number_of(a) for n in around for a in n.args if a is not node] or [node]
    return factors


def _is_prediction(value: Value, loop: Denoising) -> bool:
    """Whether a value comes out of a call in the loop as it is, and the sample went into it."""
    if not isinstance(value, Call | Item) or region_parts(value) or loop.sample is None:
        return False
    return depends(value, loop.sample)
