"""Classifier-free guidance: how many predictions are combined, how, when, and how they are computed."""

from __future__ import annotations

from collections.abc import Callable

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.guidance import (
    ELEMENTWISE,
    USER_ROOTS,
    Guidance,
    as_guidance,
    behind,
    combine_region,
    find_scales,
    has_number,
    innermost_first,
    most_negatives,
    named_scales,
    number_of,
    other_names,
    plain_parts,
    region_parts,
    scale_param,
)
from scaffold.inspect.guidance_settings import find_execution, find_interval, find_renorm
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import depends, is_none, options, same, truth_by_parts
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.turns import reshaped
from scaffold.inspect.program.values import Attr, Call, Choice, Conf, Item, Op, Param, Seq
from scaffold.source.values import Value

ORDER = 3
KEYS = (
    "answers.cfg.branches",
    "answers.cfg.scales",
    "answers.cfg.interval",
    "answers.cfg.renorm",
    "answers.cfg.execution",
    "detail.cfg.formula",
    "detail.cfg.parameters",
    "detail.cfg.others",
    "detail.cfg.interval_rule",
    "detail.cfg.interval_parameter",
    "detail.cfg.renorm_parameter",
    "detail.cfg.epsilon",
)


_Replaced = Callable[[Value], bool]
"""Tells whether a value stands over what a request says."""


def answers(program: Program) -> dict[str, Fact]:
    """See ``KEYS``; found once, for other questions ask for guidance, too."""
    return dict(_answers(program))


@once
def _answers(program: Program) -> dict[str, Fact]:
    loop = program.denoising
    if loop is None or loop.model_output is None:
        return {}
    region = combine_region(loop.model_output)
    found = [g for node in region if (g := as_guidance(node)) is not None]
    if loop.sample is not None:
        found = [g for g in found if depends(g.cond, loop.sample) and depends(g.uncond, loop.sample)]
    found = innermost_first(found)
    if not found:
        return _unguided(loop, region)
    if any(_is_put_over(program, g) for g in found):
        # The pipeline's own scale stands over what a request says: it tells whether there is guidance, or nothing does.
        kept = _settled_way(loop.model_output, lambda param: _is_replaced(program, param))
        alone = combine_region(kept)
        return {} if any(isinstance(node, Op) for node in alone) else _unguided(loop, alone, settled=True)
    places = [g.node.at for g in found]
    facts: dict[str, Fact] = {}
    others = _uncounted(loop, combine_region(loop.model_output, by_default=True), found)
    if not others:
        facts["answers.cfg.branches"] = fact(1 + most_negatives(loop.model_output, found), places)
    scales = find_scales(found)
    if all(scale_param(f) is None and has_number(f) for f in others) and all(
        named_scales(g.scale) or (scale_param(g.scale) is None and has_number(g.scale)) for g in found
    ):
        read = any(isinstance(n, Conf) for g in found for n in behind(g.scale))
        facts["answers.cfg.scales"] = fact(
            {name: value for name, (value, _) in scales.items()},
            [at for _, at in scales.values()] + places,
            "likely" if read else "certain",
        )
        facts["detail.cfg.others"] = fact(other_names(found), places)
    formulas = {g.formula for g in found}
    if len(formulas) == 1 and not others:
        facts["detail.cfg.formula"] = fact(formulas.pop(), places)
    facts["answers.cfg.execution"] = find_execution(program, loop, found)
    facts.update(find_interval(program, loop, region, {id(g.node) for g in found}))
    facts.update(find_renorm(program, loop, region))
    facts["detail.cfg.parameters"] = _parameters(facts, scales, region, program, loop)
    return facts


def _is_put_over(program: Program, guidance: Guidance) -> bool:
    """Whether the pipeline puts away the request's scale: the field itself, or what tells whether it was given."""
    nodes = behind(guidance.scale)
    if scale_param(guidance.scale) is None and has_number(guidance.scale):
        return bool(program.execution.overwritten or program.execution.erased)
    return any(_is_replaced(program, n) for n in nodes)


def _is_replaced(program: Program, value: Value) -> bool:
    """Whether a value stands over what a request says, or is a field that is taken out of every request."""
    return id(value) in program.execution.overwritten or (
        isinstance(value, Param) and (value.root, value.key) in program.execution.erased
    )


def _unguided(loop: Denoising, region: list[Value], settled: bool = False) -> dict[str, Fact]:
    """A single prediction that goes straight to the step, whichever call makes it; anything else is not known.

    ``settled`` says that the pipeline leaves no other way open.
    """
    models = [n for n in region if isinstance(n, Call) and n.name not in ELEMENTWISE]
    chosen = [n.cond for n in region if isinstance(n, Choice) and n.cond is not None]
    if not models or any(_is_of_tensor(model, loop) for model in models):
        return {}
    # One of several calls, none of which is combined with another, and guidance has no say in which.
    plain = (Choice, Seq, Item) if settled else (Choice,)
    alone = len(region) == len(models) + sum(isinstance(n, plain) for n in region)
    scaled = any(scale_param(part) is not None for cond in chosen for part in plain_parts(cond))
    if (len(models) > 1 or chosen) and (not alone or scaled):
        return {}
    place = [loop.step.at if loop.step is not None else loop.loop.at]
    return {
        "answers.cfg.branches": fact(1, place, "likely"),
        "answers.cfg.scales": fact({}, place, "likely"),
        "answers.cfg.interval": fact(None, place, "likely"),
        "answers.cfg.renorm": fact([], place, "likely"),
        "answers.cfg.execution": fact("none", place, "likely"),
    }


def _is_of_tensor(call: Call, loop: Denoising) -> bool:
    """Whether a call is a method of something computed from the sample, and so no model."""
    return isinstance(call.func, Attr) and loop.sample is not None and depends(call.func.base, loop.sample)


def _parameters(
    facts: dict[str, Fact],
    scales: dict[str, tuple[object, Evidence | None]],
    region: list[Value],
    program: Program,
    loop: Denoising,
) -> Fact:
    """Everything the user can set about guidance, with defaults: scales, interval, renormalisation."""
    params: dict[str, tuple[object, Evidence | None]] = dict(scales)
    tests = [t.cond for t in program.trace.tests if loop.number in t.loops]
    ordered = [*(n for t in tests for n in plain_parts(t)), *region]
    interval = facts.get("detail.cfg.interval_parameter")
    kind = facts.get("detail.cfg.renorm_parameter")
    wanted = {f.value for f in (interval, kind) if f is not None}
    sizes = {id(a) for n in region if isinstance(n, Call) and reshaped(n) is not None for a in n.args}
    in_region = {id(n) for n in region} - sizes
    for node in ordered:
        if not (isinstance(node, Param) and node.root == "extra_args"):
            continue
        if node.key in wanted or id(node) in in_region:
            known = default_of(node)
            value = list(known) if isinstance(known, tuple) else known
            params.setdefault(node.key, (None if known is MISSING else value, node.at))
    names = sorted(params, key=lambda n: (n not in scales, interval is None or n != interval.value))
    return fact([{"name": n, "default": params[n][0]} for n in names], [params[n][1] for n in names])


def _uncounted(loop: Denoising, region: list[Value], found: list[Guidance]) -> list[Value]:
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
    if not isinstance(value, (Call, Item)) or region_parts(value) or loop.sample is None:
        return False
    return depends(value, loop.sample)


def _settled_way(output: Value, replaced: _Replaced) -> Value:
    """The prediction without the alternatives that no request can lead to."""
    for _ in range(12):
        if not (isinstance(output, Choice) and output.cond is not None and len(output.options) == 2):
            break
        holds = _settled(output.cond, replaced)
        if holds is None:
            break
        output = output.options[0 if holds else 1]
    return output


def _settled(cond: Value, replaced: _Replaced) -> bool | None:
    """The truth of a condition that rests on replaced settings alone, or on one part that decides it."""
    if isinstance(cond, Op) and cond.op in ("not", "and", "or"):
        return truth_by_parts(cond, lambda part: _settled(part, replaced))
    asked = [n for n in plain_parts(cond) if isinstance(n, Param) and n.root in USER_ROOTS]
    if not asked or not all(replaced(param) for param in asked):
        return None
    known = default_of(cond)
    return None if known is MISSING else bool(known)
