"""Recognises combinations of an unconditional with a conditional prediction in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from scaffold.inspect.program.algebra import is_none, options, same
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import NONE, Attr, Call, Choice, Const, Item, Op, Param, Seq, Slice, Value

ELEMENTWISE = frozenset(
    [
        "norm",
        "clamp",
        "clip",
        "sqrt",
        "pow",
        "mean",
        "std",
        "sum",
        "abs",
        "where",
        "to",
        "maximum",
        "minimum",
        "mul",
        "add",
        "sub",
        "lerp",
        "unsqueeze",
        "view",
        "reshape",
        "cat",
        "stack",
        "max",
        "min",
        "vector_norm",
        "linalg",
    ]
)


USER_ROOTS = ("extra_args", "sampling_params", "request", "prompt")


@dataclass(eq=False)
class Guidance:
    """One combination of an unconditional with a conditional prediction."""

    node: Value
    uncond: Value
    cond: Value
    scale: Value
    formula: str


def combine_region(output: Value) -> list[Value]:
    """The nodes between the predictions and the step: arithmetic only, models are not entered."""
    seen: dict[int, Value] = {}
    stack = [output]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            stack.extend(reversed(region_parts(node)))
    return list(seen.values())


def region_parts(node: Value) -> list[Value]:
    """What arithmetic a node of the region is made of."""
    if isinstance(node, Op | Choice | Seq):
        return node.parts()
    if isinstance(node, Call) and node.name in ELEMENTWISE:
        base = [node.func.base] if isinstance(node.func, Attr) else []
        return [*node.args, *node.kwargs.values(), *base]
    if isinstance(node, Item) and isinstance(node.key, Slice | Const) and isinstance(node.base, Op | Choice):
        return [node.base]
    return []


def as_guidance(node: Value) -> Guidance | None:
    if isinstance(node, Call) and node.name == "lerp" and len(node.args) == 3:
        return Guidance(node, node.args[0], node.args[1], node.args[2], "u+s(c-u)")
    if not (isinstance(node, Op) and node.op in ("+", "-") and len(node.args) == 2):
        return None
    for base, product in (node.args, node.args[::-1]):
        if not (isinstance(product, Op) and product.op == "*" and len(product.args) == 2):
            continue
        for scale, difference in (product.args, product.args[::-1]):
            if not (isinstance(difference, Op) and difference.op == "-" and len(difference.args) == 2):
                continue
            cond, uncond = difference.args
            if node.op == "-":
                if base is not node.args[0]:
                    continue
                cond, uncond = uncond, cond
            if scale_param(scale) is None and not has_number(scale):
                continue
            if same(base, uncond):
                return Guidance(node, uncond, cond, scale, "u+s(c-u)")
            if same(base, cond):
                reduced = isinstance(scale, Op) and scale.op == "-" and default_of(scale.args[1]) in (1, 1.0)
                return Guidance(node, uncond, cond, scale, "c+(s-1)(c-u)" if reduced else "c+s(c-u)")
    return None


def has_number(value: Value) -> bool:
    return isinstance(default_of(value), int | float)


def scale_param(value: Value) -> Param | None:
    """The parameter that a scale is read from, through arithmetic and choices only."""
    queue, seen = [value], set()
    while queue:
        node = queue.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Param):
            if node.root in USER_ROOTS and (node.root != "sampling_params" or not is_none(node.default or NONE)):
                return node
        elif isinstance(node, Op | Choice | Item):
            queue.extend(node.parts())
    return None


def plain_parts(value: Value) -> list[Value]:
    """A condition and what its arithmetic is made of; tensors and calls are not entered."""
    stack, seen = [value], dict[int, Value]()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            if isinstance(node, Op | Choice | Item):
                stack.extend(reversed(node.parts()))
    return list(seen.values())


def distinct(values: list[Value]) -> list[Value]:
    kept: list[Value] = []
    for value in values:
        parts = [o for o in options(value) if not is_none(o)]
        if not any(any(same(a, b) for a in parts for b in options(other)) for other in kept):
            kept.append(value)
    return kept


def innermost_first(found: list[Guidance]) -> list[Guidance]:
    """Order guidance so that what feeds another comes before it."""
    inside = {id(g): {id(n) for n in combine_region(g.cond)} for g in found}
    return sorted(found, key=lambda g: sum(id(other.node) in inside[id(g)] for other in found if other is not g))


def most_negatives(output: Value, found: list[Guidance]) -> int:
    """How many unconditional predictions one way through the combination takes at most; alternatives exclude."""
    kept = distinct([g.uncond for g in found])
    number = {id(g.node): next(i for i, k in enumerate(kept) if _meet(k, g.uncond)) for g in found}
    known: dict[int, frozenset[int]] = {}

    def negatives(node: Value) -> frozenset[int]:
        if id(node) in known:
            return known[id(node)]
        known[id(node)] = frozenset()
        if isinstance(node, Choice):
            taken = max((negatives(o) for o in options(node)), key=len, default=frozenset())
        else:
            inner = [negatives(part) for part in region_parts(node)]
            taken = frozenset().union(*inner, {number[id(node)]} if id(node) in number else ())
        known[id(node)] = taken
        return taken

    return len(negatives(output))


def _meet(a: Value, b: Value) -> bool:
    return any(same(x, y) for x in options(a) for y in options(b) if not is_none(x))
