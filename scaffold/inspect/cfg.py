"""Classifier-free guidance: how many predictions are combined, how, when, and how they are computed."""

from __future__ import annotations

from dataclasses import replace

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.guidance import (
    ELEMENTWISE,
    Guidance,
    as_guidance,
    combine_region,
    default_way,
    distinct,
    has_number,
    innermost_first,
    most_negatives,
    plain_parts,
    scale_param,
)
from scaffold.inspect.guidance_differences import uncounted
from scaffold.inspect.guidance_interval import find_interval
from scaffold.inspect.guidance_renorm import find_renorm
from scaffold.inspect.guidance_scales import behind, find_scales, named_scales
from scaffold.inspect.latents import sample_rank
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import depends, is_none, options, same
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.values import Attr, Call, Choice, Conf, Const, Item, Param, Slice, Value

ORDER = 3
KEYS = (
    "answers.cfg.branches",
    "answers.cfg.scales",
    "answers.cfg.interval",
    "answers.cfg.renorm",
    "answers.cfg.execution",
    "detail.cfg.formula",
    "detail.cfg.parameters",
    "detail.cfg.interval_rule",
    "detail.cfg.interval_parameter",
    "detail.cfg.renorm_parameter",
    "detail.cfg.epsilon",
    "detail.cfg.location",
)
_BATCH_SPLITS = frozenset(("chunk", "unbind"))


def answers(program: Program) -> dict[str, Fact]:
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
    places = [g.node.at for g in found]
    facts: dict[str, Fact] = {}
    others = uncounted(loop, combine_region(loop.model_output, by_default=True), found)
    if not others:
        facts["answers.cfg.branches"] = fact(1 + most_negatives(loop.model_output, found), places)
    scales = find_scales(found)
    settled = not any(_is_overwritten(program, n) for g in found for n in behind(g.scale))
    if (
        settled
        and all(scale_param(f) is None and has_number(f) for f in others)
        and all(named_scales(g.scale) or (scale_param(g.scale) is None and has_number(g.scale)) for g in found)
    ):
        read = any(isinstance(n, Conf) for g in found for n in behind(g.scale))
        facts["answers.cfg.scales"] = fact(
            {name: value for name, (value, _) in scales.items()},
            [at for _, at in scales.values()] + places,
            "likely" if read else "certain",
        )
    formulas = {g.formula for g in found}
    if len(formulas) == 1 and not others:
        facts["detail.cfg.formula"] = fact(formulas.pop(), places)
    facts["detail.cfg.location"] = fact(f"{places[0].file}:{places[0].line}" if places[0] else None, places[:1])
    execution = _execution(program, found)
    if execution.confidence == "unknown":
        usual = {id(node) for node in combine_region(loop.model_output, by_default=True)}
        kept = [
            replace(g, cond=default_way(g.cond), uncond=default_way(g.uncond)) for g in found if id(g.node) in usual
        ]
        execution = _execution(program, kept) if kept else execution
    facts["answers.cfg.execution"] = execution
    facts.update(find_interval(program, loop, region, {id(g.node) for g in found}))
    facts.update(find_renorm(program, loop, region))
    facts["detail.cfg.parameters"] = _parameters(facts, scales, region, program, loop)
    return facts


def _is_overwritten(program: Program, node: Value) -> bool:
    """Whether a field of the request stands here that the pipeline never takes from a request."""
    return id(node) in program.overwritten or (isinstance(node, Param) and (node.root, node.key) in program.erased)


def _unguided(loop: Denoising, region: list[Value]) -> dict[str, Fact]:
    """A single prediction that goes straight to the step, whichever call makes it; anything else is not known."""
    models = [n for n in region if isinstance(n, Call) and n.name not in ELEMENTWISE]
    chosen = [n.cond for n in region if isinstance(n, Choice) and n.cond is not None]
    if not models or any(_is_of_tensor(model, loop) for model in models):
        return {}
    # One of several calls, none of which is combined with another, and guidance has no say in which.
    alone = len(region) == len(models) + sum(isinstance(n, Choice) for n in region)
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


def _execution(program: Program, found: list[Guidance]) -> Fact:
    """Whether the predictions come out of one forward, and how they are told apart."""
    predictions = [found[0].cond, *distinct([g.uncond for g in found])]
    origins = [_origin(p) for p in predictions]
    places = [p.at for p in predictions] + [o.at for o, _ in origins] + [found[0].node.at]
    if all(split is not None and same(origin, origins[0][0]) for origin, split in origins):
        split = origins[0][1]
        packed = sample_rank(program) == 2 or split == "split"
        return fact("packed" if packed else "batched", places)
    if not any(same(origin, origins[0][0]) for origin, _ in origins[1:]):
        return fact("sequential", places)
    return Fact(None, (), "unknown")


def _origin(prediction: Value) -> tuple[Value, str | None]:
    """What a prediction was computed by, and how it was cut out of a common result."""
    parts = [o for o in options(prediction) if not is_none(o)] or [prediction]
    for part in parts:
        if isinstance(part, Item) and isinstance(part.key, Const) and isinstance(part.base, Call):
            if part.base.name in ("split", *_BATCH_SPLITS):
                return part.base, part.base.name
        # One sample of a part of the batch.
        if isinstance(part, Item) and isinstance(part.base, Item) and isinstance(part.base.key, Slice):
            part = part.base
        if isinstance(part, Item) and isinstance(part.key, Slice):
            return part.base, "slice"
    return parts[0], None


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
    in_region = {id(n) for n in region}
    for node in ordered:
        if not (isinstance(node, Param) and node.root == "extra_args"):
            continue
        if node.key in wanted or id(node) in in_region:
            known = default_of(node)
            value = list(known) if isinstance(known, tuple) else known
            params.setdefault(node.key, (None if known is MISSING else value, node.at))
    names = sorted(params, key=lambda n: (n not in scales, interval is None or n != interval.value))
    return fact([{"name": n, "default": params[n][0]} for n in names], [params[n][1] for n in names])
