"""When guidance is applied: the bounds that a turn's time is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scaffold.inspect.facts import UNKNOWN, Evidence, Fact, fact
from scaffold.inspect.guidance import (
    Guidance,
    as_guidance,
    combine_region,
    default_way,
    distinct,
    has_number,
    plain_parts,
    region_parts,
    scale_param,
)
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import asks_for_none, is_none, options, reach_last, same, walk
from scaffold.inspect.program.conditions import by_default, params_of
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.turns import is_count, is_entry, is_turn
from scaffold.inspect.program.updates import through_model
from scaffold.inspect.program.values import Attr, Call, Choice, Const, Index, Item, Op, Param, Seq, Slice
from scaffold.inspect.questions.latents import sample_rank
from scaffold.source.values import Value


def find_interval(program: Program, loop: Denoising, region: list[Value], guided: set[int]) -> dict[str, Fact]:
    """The bounds that a turn's time is compared with before guidance is applied."""
    low: tuple[Value, str] | None = None
    high: tuple[Value, str] | None = None
    kinds: set[str] = set()
    unsure = False
    unread: set[int] = set()
    others = _of_something_else(region, guided)
    other_interval = False
    for test in program.trace.tests:
        if loop.number not in test.loops:
            continue
        for node, number, sure in _test_parts(test.cond, loop.number):
            if not (isinstance(node, Op) and node.op in ("<", "<=", ">", ">=") and len(node.args) == 2):
                continue
            if id(node) in others:
                other_interval = True
                continue
            left, right = node.args
            op = node.op
            if _tested(right, number) and not _tested(left, number):
                left, right, op = right, left, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
            kind = _tested(left, number)
            if kind is not None and not has_number(right):
                unread.add(id(node))
            if kind is None or not has_number(right) or kinds - {kind}:
                continue
            asked = [(by_default(cond), truth) for cond, truth in test.conditions if _asks_for(cond, right)]
            if any(decided is (not truth) for decided, truth in asked):
                continue
            kinds.add(kind)
            unsure = unsure or not sure or any(decided is None for decided, _ in asked)
            if op in (">", ">=") and low is None:
                low = (right, op)
            elif op in ("<", "<=") and high is None:
                high = (right, op)
    if low is None and high is None:
        if other_interval or any(_is_switched(node, loop.number, guided) for node in region):
            return {}
        if loop.model_output is not None and _chosen_by(loop.model_output, unread):
            return {}
        return {"answers.cfg.interval": fact(None, [loop.loop.at])}
    bounds = [default_of(b[0]) if b is not None else None for b in (low, high)]
    places = [b[0].at for b in (low, high) if b is not None]
    if low is None or high is None or unsure:
        return {"answers.cfg.interval": Fact(None, tuple(p for p in places if p), "unknown")}
    given = [p for b in (low, high) if (p := scale_param(b[0])) is not None]
    params = {p.key for p in given}
    places = [*(p.at for p in given), *places]
    facts = {
        "answers.cfg.interval": fact([float(b) for b in bounds if isinstance(b, (int, float))], places),
        "detail.cfg.interval_rule": fact(
            f"lo {'<' if low[1] == '>' else '<='} {kinds.pop()} {high[1]} hi", [low[0].at, high[0].at]
        ),
    }
    if len(params) == 1:
        facts["detail.cfg.interval_parameter"] = fact(params.pop(), places)
    return facts


def _test_parts(cond: Value, loop: int) -> Iterator[tuple[Value, int, bool]]:
    """What a condition is made of, each with the loop whose turn it speaks of, and whether it counts by default.

    An entry of a list by the number of the turn was decided before, in the loop that filled the list, or for all turns
    at once. What is only asked where something is given counts where it is given by default.
    """
    stack, seen = [(cond, loop, True)], set[int]()
    while stack:
        node, number, sure = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node, number, sure
        if isinstance(node, Item) and isinstance(node.base, Seq) and is_entry(node, number):
            stack += [(item, filled, sure) for item, filled in reversed(node.base.appends)]
        elif isinstance(node, Call) and node.name in ("all", "any"):
            stack += [(p, number, sure) for a in reversed(node.args) for p in reversed(a.parts() or [a])]
        elif isinstance(node, Choice) and asks_for_none(node.cond) and len(node.options) == 2:
            truth = by_default(node.cond) if node.cond is not None else None
            taken = node.options if truth is None else [node.options[0 if truth else 1]]
            stack += [(option, number, sure and truth is not None) for option in reversed(taken)]
        elif isinstance(node, Item) and isinstance(node.base, Op) and is_entry(node, number):
            stack.append((_entrywise(node.base, node.key), number, sure))
        elif isinstance(node, (Op, Choice, Item)):
            stack += [(part, number, sure) for part in reversed(node.parts())]


def _entrywise(value: Value, key: Value) -> Value:
    """One entry of what was computed from a whole schedule at once, as in ``((t >= lo) & (t <= hi))[i]``."""
    if isinstance(value, Op):
        return Op(value.op, [_entrywise(a, key) for a in value.args], at=value.at)
    if isinstance(value, Item) and isinstance(value.key, Slice) and value.key.step is None:
        if value.key.lower is None or default_of(value.key.lower) == 0:
            return Item(value.base, key, at=value.at)
    if isinstance(value, (Call, Attr)):
        return Item(value, key, at=value.at)
    return value


def _asks_for(cond: Value, bound: Value) -> bool:
    """Whether a condition asks if the pair that a bound stands in is there at all."""
    if not asks_for_none(cond):
        return False
    pairs = [o.items for o in options(cond.args[0]) if isinstance(o, Seq)]
    return any(item is bound for pair in pairs for item in pair)


def _chosen_by(output: Value, tests: set[int]) -> bool:
    """Whether a test of the turn's time, with a bound that was not understood, chooses between a scale and none."""
    choices = [node for node in walk(output) if isinstance(node, Choice) and node.cond is not None] if tests else []
    none = [node for node in choices if any(isinstance(o, Const) and o.value in (0, 1) for o in node.options)]
    return any(id(part) in tests for node in none if node.cond is not None for part in walk(node.cond))


def _of_something_else(region: list[Value], guided: set[int]) -> set[int]:
    """What conditions are made of whose alternatives are all guided: of a renormalisation in an interval, say."""
    alike, switched = set[int](), set[int]()
    for node in region:
        if isinstance(node, Choice) and node.cond is not None:
            every = all(any(id(part) in guided for part in combine_region(option)) for option in node.options)
            (alike if every else switched).update(id(part) for part in walk(node.cond))
    return alike - switched


def _is_switched(node: Value, loop: int, guided: set[int]) -> bool:
    """Whether the turn decides, in a way that was not understood, if a prediction is guided."""
    if not isinstance(node, Choice) or node.cond is None:
        return False
    if len({any(id(n) in guided for n in combine_region(o)) for o in node.options}) == 1:
        return False
    return any(is_entry(p, loop) or (isinstance(p, Index) and p.loop == loop) for p in plain_parts(node.cond))


def _tested(value: Value, loop: int) -> str | None:
    """What of a turn a condition tests: its time, or the share of the steps that are done."""
    for option in options(value):
        if isinstance(option, Op) and option.op == "/" and len(option.args) == 2 and is_count(option.args[0], loop):
            return "step fraction"
    return "sigma" if is_turn(value, loop) else None


# Renormalisation: whether a guided prediction is scaled by norms, and which kinds of it a request can name.

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


# Finds whether the predictions of guidance are computed one after the other, or in one forward.

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
