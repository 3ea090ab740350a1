"""Whether the model predicts the clean sample, from which the pipeline makes a velocity."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.guidance import combine_region
from scaffold.inspect.program import Program
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.turns import is_sample, is_turn
from scaffold.inspect.program.updates import through_model
from scaffold.inspect.program.values import Attr, Call, Item, Map, Op
from scaffold.source.values import Value

ORDER = 13
KEYS = (
    "detail.denoiser.predicts_clean",
    "detail.prediction.floor",
    "detail.prediction.toward_clean",
)


def answers(program: Program) -> dict[str, Fact]:
    """Return the facts of ``KEYS``."""
    return {**_prediction(program), **_clean_prediction(program)}


def _prediction(program: Program) -> dict[str, Fact]:
    """True where a prediction less the sample, or the reverse, is divided by a function of time on its way to the
    step."""
    loop = program.denoising
    if loop is None or loop.sample is None or loop.model_output is None:
        return {}
    sample = loop.sample
    for node in combine_region(loop.model_output):
        if not (isinstance(node, Op) and node.op == "/" and len(node.args) == 2):
            continue
        top = node.args[0]
        if isinstance(top, Op) and top.op == "-" and len(top.args) == 2:
            kinds = [(is_sample(a, sample), through_model(a, sample)) for a in top.args]
            predicted = [a for a, k in zip(top.args, kinds, strict=True) if k[1] and not k[0]]
            if any(k[0] for k in kinds) and predicted and not any(is_computed(a, loop) for a in predicted):
                return {"detail.denoiser.predicts_clean": fact(True, [node.at, top.at])}
    return {"detail.denoiser.predicts_clean": fact(False, [loop.model_output.at])}


def is_computed(value: Value, loop: Denoising) -> bool:
    """Whether a clean sample is not a prediction, but made of one: scaled by the time, or with the sample added."""
    region = [n for n in _behind(value) if isinstance(n, Op)]
    scaled = any(is_turn(a, loop.number) for n in region if n.op in ("*", "/") for a in n.args)
    sample = loop.sample
    return scaled or any(sample is not None and is_sample(a, sample) for n in region if n.op in "+-" for a in n.args)


def _behind(value: Value) -> list[Value]:
    """The arithmetic that makes a value, that of a dictionary's entries under names which are not known, too."""
    seen: dict[int, Value] = {}
    pending = [value]
    while pending:
        for node in combine_region(pending.pop()):
            if id(node) in seen:
                continue
            seen[id(node)] = node
            held = node.base if isinstance(node, Item) else None
            if isinstance(node, Call) and node.name == "get" and isinstance(node.func, Attr):
                held = node.func.base
            if isinstance(held, Map) and "*" in held.items:
                pending.append(held.items["*"])
    return list(seen.values())


# How a velocity is made of a prediction of the clean sample: the least time that is divided by.

_CLAMPS = ("clamp_min", "clamp", "maximum", "max")


def _clean_prediction(program: Program) -> dict[str, Fact]:
    """``toward_clean``: whether the prediction less the sample is divided, so that the velocity points at the image."""
    loop = program.denoising
    if loop is None or loop.sample is None or loop.model_output is None:
        return {}
    for node in combine_region(loop.model_output):
        if not (isinstance(node, Op) and node.op == "/" and len(node.args) == 2):
            continue
        top, bottom = node.args
        if not (isinstance(top, Op) and top.op == "-" and len(top.args) == 2):
            continue
        kinds = [is_sample(a, loop.sample) for a in top.args]
        models = [through_model(a, loop.sample) for a in top.args]
        if sorted(kinds) != [False, True] or not models[kinds.index(False)]:
            continue
        if is_computed(top.args[kinds.index(False)], loop):
            continue
        facts = {"detail.prediction.toward_clean": fact(kinds[1], [node.at, top.at])}
        floor = _floor(bottom)
        if floor is not None:
            facts["detail.prediction.floor"] = fact(floor, [bottom.at, node.at])
        return facts
    return {}


def _floor(value: Value) -> float | None:
    if not (isinstance(value, Call) and value.name in _CLAMPS):
        return None
    bounds = [*(value.args if isinstance(value.func, Attr) else value.args[1:]), *value.kwargs.values()]
    known = [default_of(bound) for bound in bounds]
    numbers = [float(k) for k in known if isinstance(k, (int, float)) and not isinstance(k, bool)]
    return numbers[0] if len(numbers) == 1 and len(bounds) == 1 else None
