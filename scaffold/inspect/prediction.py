"""Whether the model predicts the clean sample, from which the pipeline makes a velocity."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.guidance import combine_region
from scaffold.inspect.program import Program
from scaffold.inspect.program.turns import is_sample
from scaffold.inspect.program.updates import through_model
from scaffold.inspect.program.values import Op

ORDER = 13
KEYS = ("detail.denoiser.predicts_clean",)


def answers(program: Program) -> dict[str, Fact]:
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
            if any(k[0] for k in kinds) and any(k[1] and not k[0] for k in kinds):
                return {KEYS[0]: fact(True, [node.at, top.at])}
    return {KEYS[0]: fact(False, [loop.model_output.at])}
