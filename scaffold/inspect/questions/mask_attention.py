"""How text attends, where the denoiser gets a mask of the whole sequence."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import walk_all
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Call
from scaffold.inspect.questions import sequence
from scaffold.inspect.questions.denoiser import find_denoiser

ORDER = 17
KEYS = ("detail.mask.rows",)


def answers(program: Program) -> dict[str, Fact]:
    """``causal`` where the mask hides what stands to the right; the rows of the image may be freed from it.

    It also tells how text attends, where the question about sequences found no flag that says so.
    """
    denoiser = find_denoiser(program)
    if denoiser is None:
        return {}
    given = denoiser.record.bound or denoiser.record.kwargs
    for node in walk_all(value for name, value in given.items() if "mask" in name):
        if isinstance(node, Call) and node.name == "triu" and default_of(node.argument(1, "diagonal")) == 1:
            facts = {KEYS[0]: fact("causal", [node.at])}
            if "detail.text_attention" not in sequence.answers(program):
                facts["detail.text_attention"] = fact("causal", [node.at])
            return facts
    return {}
