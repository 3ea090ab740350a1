"""Training scores the sample itself in place of the one that the step made of it.

The log-prob of a step is that of the next recorded latents under the mean that the step has from the present ones. Given
the present ones twice, it is a number like any other, its gradient pulls the mean back to where the step began, and the
ratio to the rollout's log-prob is wrong in every step.

    scheduler.sample_previous_step(sample=latents[:, step], prev_sample=latents[:, step], …)

Instead: ``prev_sample=latents[:, step + 1]``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC237"
NAME = "scored-sample"
SEVERITY = "error"
CHECKLIST = ("pitfall 2",)
APPLIES = Applies(objective="policy_gradient")
HELP = "score the latents that the step led to: prev_sample=latents[:, step + 1]"
_CASTS = {"float", "double", "half", "to", "type", "contiguous", "clone", "detach"}


def check(package: Package) -> Hits:
    """Compare what a step of the training side starts from with what it scores."""
    for function, call in sampling_calls(side_of(package, "training")):
        sample, scored = (sampling_argument(call, name) for name in ("sample", "prev_sample"))
        if sample is not None and scored is not None and _bare(sample) == _bare(scored):
            yield Hit(function.file, scored, f"the step is scored with the sample that it starts from, {_bare(scored)}")


def _bare(value: ast.expr) -> str:
    """The text of a value without what changes its type alone."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _CASTS:
        value = value.func.value
    return ast.unparse(value)


FAILING = (
    Example(
        "the present latents twice",
        training=("prev_sample=latents[:, step + 1].float()", "prev_sample=«latents[:, step].float()»"),
    ),
)
PASSING = (
    Example("in another type", training=("sample=latents[:, step].float()", "sample=latents[:, step].double()")),
)
