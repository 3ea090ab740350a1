"""When guidance is applied: the bounds that a turn's time is compared with."""

from __future__ import annotations

from collections.abc import Iterator

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.guidance import combine_region, has_number, plain_parts, scale_param
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import asks_for_none, options, walk
from scaffold.inspect.program.by_default import by_default
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.turns import is_count, is_entry, is_turn
from scaffold.inspect.program.values import Attr, Call, Choice, Const, Index, Item, Op, Seq, Slice
from scaffold.source.values import Value


def find_interval(program: Program, loop: Denoising, region: list[Value], guided: set[int]) -> dict[str, Fact]:
    """The bounds that a turn's time is compared with before guidance is applied."""
    low: tuple[Value, str] | None = None
    high: tuple[Value, str] | None = None
    kinds: set[str] = set()
    unsure = False
    unread: set[int] = set()
    others = _of_something_else(region, guided)
    passed_over = False
    for test in program.trace.tests:
        if loop.number not in test.loops:
            continue
        for node, number, sure in _test_parts(test.cond, loop.number):
            if not (isinstance(node, Op) and node.op in ("<", "<=", ">", ">=") and len(node.args) == 2):
                continue
            if id(node) in others:
                passed_over = True
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
        if passed_over or any(_is_switched(node, loop.number, guided) for node in region):
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
