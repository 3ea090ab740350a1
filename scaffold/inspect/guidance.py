"""Recognises combinations of an unconditional with a conditional prediction in arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program.algebra import is_none, options, reach, same, truth_by_parts
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.turns import SHAPE_METHODS, without_reshaping
from scaffold.inspect.program.values import NONE, Attr, Call, Choice, Const, Item, Op, Param, Seq, Slice
from scaffold.source.values import Value

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
        *SHAPE_METHODS,
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


def combine_region(output: Value, by_default: bool = False) -> list[Value]:
    """Return the arithmetic between the predictions and the step, without entering models.

    ``by_default`` leaves out alternatives that are known not to be computed with default settings.
    """
    if not by_default:
        return list(reach([output], region_parts))
    return list(reach([default_way(output)], lambda node: map(default_way, region_parts(node))))


def default_way(output: Value) -> Value:
    """Return the prediction with default settings, as far as it is known."""
    for _ in range(12):
        if not (isinstance(output, Choice) and output.cond is not None and len(output.options) == 2):
            break
        truth = default_of(output.cond)
        if truth is MISSING:
            break
        output = output.options[0 if truth else 1]
    return output


def region_parts(node: Value) -> list[Value]:
    """Return the operands of a node's arithmetic."""
    if isinstance(node, (Op, Choice, Seq)):
        return node.parts()
    if isinstance(node, Call) and node.name in ELEMENTWISE:
        base = [node.func.base] if isinstance(node.func, Attr) else []
        return [*node.args, *node.kwargs.values(), *base]
    if isinstance(node, Item) and isinstance(node.key, (Slice, Const)) and isinstance(node.base, (Op, Choice)):
        return [node.base]
    if isinstance(node, Item) and _is_cut(node.key) and isinstance(node.base, Call):
        return [node.base] if node.base.name not in ("chunk", "unbind", "split") else []
    return []


def _is_cut(key: Value) -> bool:
    """Whether an index takes entries of each sample, as in ``x[:, :, 1:]``."""
    return isinstance(key, Seq) and len(key.items) > 1 and all(isinstance(i, Slice) for i in key.items)


def as_guidance(node: Value) -> Guidance | None:
    if isinstance(node, Call) and node.name == "lerp" and len(node.args) == 3:
        return Guidance(node, node.args[0], node.args[1], number_of(node.args[2]), "u+s(c-u)")
    if not (isinstance(node, Op) and node.op in ("+", "-") and len(node.args) == 2):
        return None
    for base, product in (node.args, node.args[::-1]):
        if not (isinstance(product, Op) and product.op == "*" and len(product.args) == 2):
            continue
        for factor, difference in (product.args, product.args[::-1]):
            scale = number_of(factor)
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
    return isinstance(default_of(value), (int, float))


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
        elif isinstance(node, (Op, Choice, Item)):
            queue.extend(node.parts())
    return None


def number_of(scale: Value) -> Value:
    """The number behind a scale that is spread over the batch."""
    for _ in range(6):
        scale = without_reshaping(scale)
        if isinstance(scale, Call) and scale.name in ("tensor", "as_tensor", "full") and scale.args:
            scale = scale.args[-1] if scale.name == "full" else scale.args[0]
        elif isinstance(scale, Seq) and len(scale.items) == 1:
            scale = scale.items[0]
        else:
            break
    return scale


def plain_parts(value: Value) -> list[Value]:
    """A condition and what its arithmetic is made of; tensors and calls are not entered."""
    return list(reach([value], lambda node: node.parts() if isinstance(node, (Op, Choice, Item)) else ()))


def distinct(values: list[Value]) -> list[Value]:
    kept: list[Value] = []
    for value in values:
        parts = [o for o in options(value) if not is_none(o)]
        if not any(any(same(a, b) for a in parts for b in options(other)) for other in kept):
            kept.append(value)
    return kept


def innermost_first(found: list[Guidance]) -> list[Guidance]:
    """Sort combinations so that each comes before those that use it."""
    inside = {id(g): {id(n) for n in combine_region(g.cond)} for g in found}
    return sorted(found, key=lambda g: sum(id(other.node) in inside[id(g)] for other in found if other is not g))


def most_negatives(output: Value, found: list[Guidance]) -> int:
    """Return the largest number of unconditional predictions on one path through the combination."""
    kept = distinct([g.uncond for g in found])
    # A side that is None on every path is not a prediction.
    number = {id(g.node): i for g in found for i, k in reversed(list(enumerate(kept))) if _meet(k, g.uncond)}
    again = {id(g.node) for g in found if _guides_again(g, found)}
    known: dict[tuple[int, frozenset[tuple[int, bool]]], frozenset[int]] = {}

    def negatives(node: Value, facts: dict[int, bool]) -> frozenset[int]:
        key = (id(node), frozenset(facts.items()))
        if key in known or len(known) > 20_000:
            return known.get(key, frozenset())
        known[key] = frozenset()
        if isinstance(node, Choice):
            ways = ways_through(node, facts)
            taken = max((negatives(option, given) for option, given in ways), key=len, default=frozenset())
        else:
            inner = [negatives(part, facts) for part in region_parts(node)]
            own = frozenset({number[id(node)]} if id(node) in number else ())
            taken = frozenset().union(*inner)
            # Combining two predictions that are already guided adds no guidance.
            taken = max(taken, own, key=len) if id(node) in again else taken | own
        known[key] = taken
        return taken

    return len(negatives(output, {}))


def _guides_again(guidance: Guidance, found: list[Guidance]) -> bool:
    """Whether on some path both predictions are the same, already guided one."""
    nodes = {id(g.node) for g in found if g is not guidance}
    sides = [[id(n) for n in _plainly(side)] for side in (guidance.cond, guidance.uncond)]
    return bool(nodes.intersection(*sides))


def _plainly(value: Value) -> list[Value]:
    """Return the alternatives of a prediction, without arithmetic."""

    def inner(node: Value) -> list[Value]:
        return node.parts() if isinstance(node, (Choice, Seq)) else [node.base] if isinstance(node, Item) else []

    return list(reach([value], inner))


def ways_through(choice: Choice, facts: dict[int, bool]) -> list[tuple[Value, dict[int, bool]]]:
    """Return the alternatives consistent with the known conditions, each with the conditions known if it is taken."""
    if choice.cond is None or len(choice.options) != 2:
        return [(option, facts) for option in options(choice)]
    known = truth(choice.cond, facts)
    ways = [(o, t) for o, t in zip(choice.options, (True, False), strict=True) if known is None or known is t]
    return [(option, {**facts, **implied(choice.cond, t)}) for option, t in ways]


def implied(cond: Value, holds: bool) -> dict[int, bool]:
    """Return the truth of a condition's parts implied by its own."""
    if isinstance(cond, Op) and cond.op == "not":
        return implied(cond.args[0], not holds)
    if isinstance(cond, Op) and cond.op == ("and" if holds else "or"):
        return {part: value for arg in cond.args for part, value in implied(arg, holds).items()}
    return {id(cond): holds}


def truth(cond: Value, facts: dict[int, bool]) -> bool | None:
    """The truth of a condition, as far as that of other conditions decides it."""
    return facts[id(cond)] if id(cond) in facts else truth_by_parts(cond, lambda part: truth(part, facts))


def _meet(a: Value, b: Value) -> bool:
    return any(same(x, y) for x in options(a) for y in options(b) if not is_none(x))


# The scales of guidance: the request's settings that hold them, and their defaults.

Scales = dict[str, tuple[object, Evidence | None]]
"""Default and place by name."""


def find_scales(found: list[Guidance]) -> Scales:
    """Each scale of the combinations under its setting's name."""
    scales: Scales = {}
    chains = _chains(found)
    for guidance, chain in zip(found, chains, strict=True):
        for param in named_scales(guidance.scale):
            if (name := _name(param)) in chain:
                scales.setdefault(name, (effective(guidance.scale, param), param.at))
    return scales


def other_names(found: list[Guidance]) -> dict[str, list[str]]:
    """Of each scale that is taken from several settings, those asked behind the first, in order."""
    return {chain[0]: chain[1:] for chain in _chains(found) if len(chain) > 1}


def _chains(found: list[Guidance]) -> list[list[str]]:
    """The settings that each scale is taken from, one before the other; a scale of its own is behind no other."""
    chains = [list(dict.fromkeys(map(_name, named_scales(guidance.scale)))) for guidance in found]
    firsts = {chain[0] for chain in chains if chain}
    return [[*chain[:1], *(name for name in chain[1:] if name not in firsts)] for chain in chains]


def _name(param: Param) -> str:
    return param.key.rpartition(".")[2]


def named_scales(scale: Value) -> list[Param]:
    """The parameters that a scale is taken from, one before the other; else the one that it is computed from."""

    def inner(node: Value) -> list[Value]:
        taken = isinstance(node, (Param, Choice)) or (isinstance(node, Op) and node.op in ("or", "and"))
        return node.parts() if taken else []

    found = [n for n in reach([scale], inner) if isinstance(n, Param) and scale_param(n) is n]
    if found:
        return found
    computed = [n for n in plain_parts(scale) if isinstance(n, Param) and scale_param(n) is n]
    return computed[:1] if len({n.key for n in computed}) == 1 else []


def behind(scale: Value) -> list[Value]:
    """Return the values a scale is computed from, and the defaults of its parameter."""
    nodes = plain_parts(scale)
    param = scale_param(scale)
    while param is not None and param.default is not None:
        inner = plain_parts(param.default)
        nodes += inner
        param = next((n for n in inner if isinstance(n, Param)), None)
    return nodes


def effective(scale: Value, param: Param) -> object:
    """The scale's value when nobody sets it; gating by time is not counted. None where it is not known."""
    found = _defaults(scale, param)
    return found.pop() if len(found) == 1 else None


def _defaults(node: Value, param: Param) -> set[int | float | None]:
    """The numbers that ``node`` may be by default, of the ways that lead to the parameter."""
    computed = isinstance(node, Op) and node.op in ("+", "-", "*", "/")
    known = MISSING if computed else default_of(node)
    if isinstance(known, (int, float)):
        return {known}
    if isinstance(node, Choice) and node.cond is not None and len(node.options) == 2:
        truth = default_of(node.cond)
        if truth is not MISSING:
            return _defaults(node.options[0 if truth else 1], param)
    if isinstance(node, (Choice, Op)):
        kept = [o for o in node.parts() if any(n is param for n in plain_parts(o))]
        if kept and isinstance(node, Choice):  # another scale for some requests; none of it is 1, or 0
            others = {default_of(o) for o in node.options if o not in kept}
            kept += [o for o in node.options if o not in kept and others - {0, 1, MISSING}]
        if kept or isinstance(node, Choice):
            return {value for o in kept or node.parts() for value in _defaults(o, param)}
    return {None}
