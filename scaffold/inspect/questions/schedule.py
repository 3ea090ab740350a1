"""Which noise levels the loop walks through: how many, which way, and how they are shifted."""

from __future__ import annotations

from scaffold.inspect.facts import Fact
from scaffold.inspect.loop_schedule import loop_schedule
from scaffold.inspect.program import Program
from scaffold.inspect.questions.class_schedule import class_schedule

ORDER = 5
KEYS = (
    "answers.scheduler.steps",
    "answers.scheduler.direction",
    "answers.scheduler.shift",
    "detail.scheduler.default_steps",
    "detail.scheduler.shift_setting",
)


def answers(program: Program) -> dict[str, Fact]:
    """``steps`` counts turns for n = num_inference_steps; ``shift`` is the default of the text-to-image path,
    ``shift_setting`` the extra argument with which a request asks for another.

    What the loop runs over decides, then the class of the source that makes it.
    """
    found, other = dict(loop_schedule(program)), class_schedule(program)
    for key in KEYS:
        if key in other and (key not in found or found[key].confidence == "unknown"):
            found[key] = other[key]
    return found
