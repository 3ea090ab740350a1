"""Finds whether the predictions of guidance are computed one after the other, or in one forward."""

from __future__ import annotations

from dataclasses import replace

from scaffold.inspect.facts import UNKNOWN, Evidence, Fact, fact
from scaffold.inspect.guidance import Guidance, combine_region, default_way, distinct
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import is_none, options, same
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.updates import through_model
from scaffold.inspect.program.values import Call, Const, Item, Op, Slice
from scaffold.inspect.questions.latents import sample_rank
from scaffold.source.values import Value

_BATCH_SPLITS = frozenset(("chunk", "unbind"))


def find_execution(program: Program, loop: Denoising, found: list[Guidance]) -> Fact:
    """Return ``packed``, ``batched`` or ``sequential``: common to all combinations, else to the default path's."""
    everywhere = _agreed(program, loop, found)
    if everywhere.confidence != "unknown" or loop.model_output is None:
        return everywhere
    usual = {id(node) for node in combine_region(loop.model_output, by_default=True)}
    kept = [replace(g, cond=default_way(g.cond), uncond=default_way(g.uncond)) for g in found if id(g.node) in usual]
    return _agreed(program, loop, kept)


def _agreed(program: Program, loop: Denoising, found: list[Guidance]) -> Fact:
    kinds = [_execution(program, loop, group) for group in _groups(found)]
    values = {k.value for k in kinds}
    return kinds[0] if len(values) == 1 else UNKNOWN


def _groups(found: list[Guidance]) -> list[list[Guidance]]:
    """The combinations that feed one another, innermost first; alternatives stand in different groups."""
    if len(found) < 2:
        return [found] if found else []
    nodes = {id(g): {id(n) for n in combine_region(g.node)} for g in found}
    outer = [g for g in found if not any(id(g.node) in nodes[id(o)] for o in found if o is not g)]
    return [[g for g in found if g is o or id(g.node) in nodes[id(o)]] for o in outer]


def _execution(program: Program, loop: Denoising, found: list[Guidance]) -> Fact:
    """Whether the predictions come out of one forward, and how they are told apart."""
    predictions = [found[0].cond, *distinct([g.uncond for g in found])]
    origins = [_origin(p, loop) for p in predictions]
    places: list[Evidence | None] = [p.at for p in predictions] + [o.at for o, _ in origins] + [found[0].node.at]
    if all(split is not None and same(origin, origins[0][0]) for origin, split in origins):
        split = origins[0][1]
        packed = sample_rank(program) == 2 or split == "split"
        return fact("packed" if packed else "batched", places)
    computed = any(isinstance(origin, Op) for origin, _ in origins)
    if not computed and not any(same(origin, origins[0][0]) for origin, _ in origins[1:]):
        return fact("sequential", places)
    return UNKNOWN


def _origin(prediction: Value, loop: Denoising) -> tuple[Value, str | None]:
    """What a prediction was computed by, and how it was cut out of a common result."""
    prediction = _predicted(prediction, loop)
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


def _predicted(value: Value, loop: Denoising) -> Value:
    """The prediction in arithmetic on it, as in ``x - level * prediction``."""
    for _ in range(8):
        if loop.sample is None or not isinstance(value, Op):
            break
        sample = loop.sample
        inner = [a for a in value.args if through_model(a, sample)]
        if len(inner) != 1:
            break
        value = inner[0]
    return value
