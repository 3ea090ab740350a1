"""The velocity that an adapter hands to the scheduler, worked out for small tensors, beside the pipeline's."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from scaffold.check.model.arrays import Array
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_formula import METHOD
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded, recorded_float, recorded_list
from scaffold.check.model.worked_out import OPAQUE, Bound, NotPlainError, RefusedError, Stub, Worked

LOW, HIGH = 0.25, 0.75
SIGMAS = (0.5, HIGH, LOW, 0.9)
SCALE, LEAST = 1.7, 0.55
TOKENS, CHANNELS = 2, 2
# Two tokens of two channels for each sample. Factors of the renormalisation, of the first two samples by token and as a
# whole: 0.7, 1.3 and 0.87; 0.4, 0.8 and 0.42. So each limit is met, and tokens differ from their sample.
_WITH = (1.0, -0.6, 0.7, 0.9, 1.2, 1.6, -0.5, 0.49, 0.3, 1.4, 0.8, 0.5, -1.2, 0.9, 0.7, 1.1)
_WITHOUT = (0.4, -0.22, 0.9, 1.22, -1.4, -1.8, -0.3, 0.33, 0.9, 0.7, -0.5, 0.4, 0.2, 1.0, -0.3, 0.6)
PER_TOKEN = ("text_channel", "channel")
KNOWN = (*PER_TOKEN, "global")
FORMULAS = ("u+s(c-u)", "c+s(c-u)")


class Guidance(NamedTuple):
    """What ``scaffold.toml`` records of the pipeline's guidance.

    Attributes:
        formula: one of `FORMULAS`.
        scale, image_scale, interval, renorm_type, renorm_min: names of the options, None where there is none.
        strict: whether the low and the high end of the interval are left out.
        renorms: known renormalisations.
        epsilon: what is added to a norm before it divides.
    """

    formula: str
    scale: str
    image_scale: str | None
    interval: str | None
    strict: tuple[bool, bool]
    renorm_type: str | None
    renorm_min: str | None
    renorms: tuple[str, ...]
    epsilon: float


def recorded_guidance(package: Package) -> Guidance | None:
    """Return what is recorded, None where that is not enough to work the velocity out."""
    formula = (recorded(package, "cfg", "formula") or "").replace(" ", "")
    rule = (recorded(package, "cfg", "interval_rule") or "").replace(" ", "")
    scale, interval = recorded(package, "cfg", "text_scale"), recorded(package, "cfg", "interval")
    ends = re.fullmatch(r"lo(<=?)sigma(<=?)hi", rule)
    names = recorded_list(package, "cfg", "renorms") or []
    if formula not in FORMULAS or scale is None or (interval is None) != (ends is None) or not set(names) <= {*KNOWN}:
        return None
    kind = recorded(package, "cfg", "renorm_type")
    if names and kind is None:
        return None
    return Guidance(
        formula,
        scale,
        recorded(package, "cfg", "image_scale"),
        interval,
        (ends[1] == "<", ends[2] == "<") if ends else (True, False),
        kind,
        recorded(package, "cfg", "renorm_min"),
        tuple(names),
        recorded_float(package, "cfg", "epsilon") or 0.0,
    )


class Velocity(NamedTuple):
    """A velocity that was worked out.

    Attributes:
        values: by sample, token and channel, as the scheduler is given them.
        wanted: what the pipeline computes.
        work: how it was worked out.
    """

    values: Array
    wanted: list[float]
    work: Worked

    @property
    def wrong(self) -> list[int]:
        """Samples whose velocity is another one."""
        size = TOKENS * CHANNELS
        pairs = list(zip(self.values.values, self.wanted, strict=True))
        rows = [pairs[at : at + size] for at in range(0, len(pairs), size)]
        return [
            i for i, row in enumerate(rows) if not all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6) for a, b in row)
        ]


def velocity(adapter: ClassModel, facts: Guidance, renorm: str | None, least: float = LEAST) -> Velocity | None:
    """Return the velocity that a training adapter gives to the scheduler, under one renormalisation.

    Args:
        adapter: the adapter.
        facts: what the pipeline does.
        renorm: name of the renormalisation, None where there is none to choose.
        least: its smallest factor.
    """
    method = adapter.method(METHOD)
    if method is None or method.is_abstract or len(method.positional) != 7:
        return None
    shape = (len(SIGMAS), TOKENS, CHANNELS)
    count = math.prod(shape)
    branches: dict[str, tuple[float, ...]] = {"with": _WITH, "without": _WITHOUT}
    given: list[Any] = []

    def module(*_: Any, branch: Any = None, **__: Any) -> Any:
        if branch not in branches:
            raise NotPlainError
        return (Array(shape, branches[branch]),)

    def sampled(*values: Any, model_output: Any = None, **_: Any) -> tuple[Any, ...]:
        given.append(model_output if model_output is not None else values[1] if len(values) > 1 else OPAQUE)
        return (OPAQUE,) * 5

    options = {facts.scale: SCALE, facts.image_scale: 1.0, facts.interval: (LOW, HIGH)}
    options |= {facts.renorm_type: renorm, facts.renorm_min: least}
    pipeline = Stub({name: value for name, value in options.items() if name is not None}, open_ended=False)
    trajectory = {
        "all_latents": Array((shape[0], 2, TOKENS, CHANNELS), [0.0] * (2 * count)),
        "all_timesteps": Array((len(SIGMAS), 1), SIGMAS),
    }
    work = Worked()
    values = (
        Stub({}, {"__call__": module}, open_ended=False),
        Stub({}, {"sample_previous_step": sampled}),
        Stub({"pipeline": pipeline, "algo": Stub({})}),
        {"branch": "with"},
        {"branch": "without"},
        trajectory,
        0,
    )
    try:
        work.call(Bound(method, None, adapter), *values)
    except (NotPlainError, RefusedError):
        return None
    if len(given) != 1 or not isinstance(given[0], Array) or given[0].shape != shape:
        return None
    wanted: list[float] = []
    size = TOKENS * CHANNELS
    for at, sigma in enumerate(SIGMAS):
        part = slice(at * size, (at + 1) * size)
        wanted += _guided(facts, branches["with"][part], branches["without"][part], sigma, renorm, least)
    return Velocity(given[0], wanted, work)


def guided_at(facts: Guidance, sample: int) -> bool:
    """Whether the pipeline guides one of the samples that are worked out."""
    return _inside(facts, SIGMAS[sample])


def _inside(facts: Guidance, sigma: float) -> bool:
    low, high = facts.strict
    inside = (sigma > LOW if low else sigma >= LOW) and (sigma < HIGH if high else sigma <= HIGH)
    return facts.interval is None or inside


def _guided(
    facts: Guidance, c: Sequence[float], u: Sequence[float], sigma: float, renorm: str | None, least: float
) -> list[float]:
    """Return the pipeline's velocity of one sample, token by token."""
    if not _inside(facts, sigma):
        return list(c)
    start = u if facts.formula == "u+s(c-u)" else c
    guided = [s + SCALE * (a - b) for s, a, b in zip(start, c, u, strict=True)]
    if renorm is None:
        return guided
    size = CHANNELS if renorm in PER_TOKEN else len(guided)
    found: list[float] = []
    for at in range(0, len(guided), size):
        one, other = guided[at : at + size], c[at : at + size]
        factor = math.hypot(*other) / (math.hypot(*one) + facts.epsilon)
        factor = min(max(factor, least if facts.renorm_min is not None else 0.0), 1.0)
        found += [value * factor for value in one]
    return found


def quotients(velocity: Velocity, package: Package) -> list[tuple[FunctionModel, Any]]:
    """Return the divisions of arrays in the package's own text that the velocity came by."""
    return [(function, node) for node, function in velocity.work.quotients.items() if function.file in package.files]
