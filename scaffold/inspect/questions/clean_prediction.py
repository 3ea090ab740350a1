"""How a velocity is made of a prediction of the clean sample: the least time that is divided by."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.guidance import combine_region
from scaffold.inspect.program import Program
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.turns import is_sample
from scaffold.inspect.program.updates import through_model
from scaffold.inspect.program.values import Attr, Call, Op
from scaffold.inspect.questions.prediction import is_computed
from scaffold.source.values import Value

ORDER = 14
KEYS = ("detail.prediction.floor", "detail.prediction.toward_clean")
_CLAMPS = ("clamp_min", "clamp", "maximum", "max")


def answers(program: Program) -> dict[str, Fact]:
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
