"""Renormalisation: whether a guided prediction is scaled by norms, and which kinds of it a request can name."""

from __future__ import annotations

from scaffold.inspect.facts import UNKNOWN, Evidence, Fact, fact
from scaffold.inspect.guidance import as_guidance, combine_region, region_parts, scale_param
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import reach_last
from scaffold.inspect.program.conditions import params_of
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.updates import through_model
from scaffold.inspect.program.values import Call, Choice, Const, Op, Param
from scaffold.source.values import Value

_NORMS = frozenset(("norm", "vector_norm", "std"))
_STATISTICS = frozenset((*_NORMS, "var", "mean", "sum", "sqrt", "rsqrt", "amax", "max"))
"""Functions that reduce a prediction to one number."""


def find_renorm(program: Program, loop: Denoising, region: list[Value]) -> dict[str, Fact]:
    """The strings that a parameter is compared with before norms are taken; none where nothing is renormalised.

    Unknown where a prediction is scaled by a norm of predictions that has no such name, unless a flag that no request
    can set leaves it out.
    """
    kinds: dict[str, Evidence | None] = {}
    parameter: Param | None = None
    for record in program.trace.calls:
        if loop.number not in record.loops or record.method not in _NORMS:
            continue
        for cond, truth in record.conditions:
            if not (truth and isinstance(cond, Op) and cond.op == "==" and len(cond.args) == 2):
                continue
            named = [a for a in cond.args if isinstance(a, Const) and isinstance(a.value, str)]
            chosen = [p for a in cond.args if (p := scale_param(a)) is not None]
            if named and chosen:
                kinds.setdefault(str(named[0].value), cond.at)
                parameter = chosen[0]
    facts = {"answers.cfg.renorm": fact(list(kinds), list(kinds.values()) or [loop.loop.at])}
    if not kinds and _is_scaled(loop):
        facts["answers.cfg.renorm"] = UNKNOWN
    if parameter is not None:
        facts["detail.cfg.renorm_parameter"] = fact(parameter.key, [parameter.at])
    # A division under a flag that nobody can set is not part of the answer.
    for node in region if kinds or loop.model_output is None else _guided_way(loop.model_output):
        if isinstance(node, Op) and node.op == "/" and isinstance(node.args[1], Op) and node.args[1].op == "+":
            for term in node.args[1].args:
                if isinstance(term, Const) and isinstance(term.value, float) and 0 < term.value < 1e-3:
                    facts["detail.cfg.epsilon"] = fact(term.value, [term.at])
    return facts


def _is_scaled(loop: Denoising) -> bool:
    """Whether a statistic of predictions goes into the guided one, by default or where a request asks for it."""
    if loop.model_output is None or loop.sample is None:
        return False
    used = [n for n in _guided_way(loop.model_output, asked=True) if isinstance(n, Call)]
    return any(n.name in _STATISTICS and through_model(n, loop.sample) for n in used)


def _guided_way(output: Value, *, asked: bool = False) -> list[Value]:
    """The arithmetic between predictions and step, by default in all but one thing: that there is guidance.

    With ``asked``, ways that a request can choose are among it.
    """

    def into(node: Value) -> list[Value]:
        taken = node if asked and _is_asked_for(node) else _taken(node)
        return region_parts(node) if taken is node else [taken]

    return list(reach_last([output], into))


def _is_asked_for(node: Value) -> bool:
    """Whether a request decides between two ways."""
    if not isinstance(node, Choice) or node.cond is None:
        return False
    return any(param.root in ("sampling_params", "extra_args") for param in params_of(node.cond))


def _taken(node: Value) -> Value:
    """Return the default of two alternatives, or the guided one if the default is unguided."""
    if not (isinstance(node, Choice) and node.cond is not None and len(node.options) == 2):
        return node
    truth = default_of(node.cond)
    if truth is MISSING:
        return node
    chosen, other = node.options if truth else node.options[::-1]
    return other if _guides(other) and not _guides(chosen) else chosen


def _guides(value: Value) -> bool:
    return any(as_guidance(node) is not None for node in combine_region(value))
