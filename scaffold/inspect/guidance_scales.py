"""The scales of guidance: the request's settings that hold them, and their defaults."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence
from scaffold.inspect.guidance import Guidance, plain_parts, scale_param
from scaffold.inspect.program.algebra import reach
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.values import Choice, Op, Param
from scaffold.source.values import Value

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
