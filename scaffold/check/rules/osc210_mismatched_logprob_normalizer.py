"""One side's log-probs hold the Gaussian's normaliser, the other's do not.

``include_logprob_normalizer`` is True where it is not given. A log-prob with ``-log(σ) - log(2π)/2`` and one without
differ by a constant of each step, so the importance ratio is far from 1 at once and every sample is clipped.

    self.inner.step(…)                                       # rollout: the default, True
    scheduler.sample_previous_step(…, include_logprob_normalizer=False)

Instead: one constant in a module that both adapters import, given on both sides.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import has_unpacking
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sde import options, sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.values import UNKNOWN
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC210"
NAME = "mismatched-logprob-normalizer"
SEVERITY = "error"
CHECKLIST = ("pitfall 7",)
APPLIES = Applies(objective="policy_gradient")
HELP = "give include_logprob_normalizer the same value on both sides, from one shared constant"
OPTION = "include_logprob_normalizer"
Place = tuple[FunctionModel, ast.AST]


def check(package: Package) -> Hits:
    """Compare the values of the two sides."""
    found = [_values(package, side_of(package, which)) for which in ("training", "rollout")]
    if None in found:
        return
    training, rollout = (values for values in found if values is not None)
    if len(training) == len(rollout) == 1 and training.keys() != rollout.keys():
        trained, sampled = next(iter(training)), next(iter(rollout))
        for values, ours, theirs, other in (
            (training, trained, sampled, "rollout"),
            (rollout, sampled, trained, "training"),
        ):
            function, node, given = values[ours]
            # Where only one side says something, the one that says nothing is marked.
            if not given or all(values[value][2] for values in (training, rollout) for value in values):
                shown = ours if given else f"left at its default {ours}"
                yield Hit(function.file, node, f"{OPTION} is {shown} here and {theirs} in the {other}")


def _values(package: Package, side: Side) -> dict[bool, tuple[FunctionModel, ast.AST, bool]] | None:
    """Return value -> a place of it and whether it is written there; None where that is not certain."""
    calls = list(sampling_calls(side))
    if not calls:
        return None
    values: dict[bool, tuple[FunctionModel, ast.AST, bool]] = {}
    given = options(side, OPTION)
    for option in given:
        value = option.function.file.value(option.value)
        if value is UNKNOWN or not isinstance(value, bool):
            return None
        values.setdefault(value, (option.function, option.value, True))
    elsewhere = any(option.call is None or option.call not in [call for _, call in calls] for option in given)
    named = [option.call for option in given]
    for function, call in calls:
        if call not in named and not (elsewhere and has_unpacking(call)):
            values.setdefault(True, (function, call.func, False))
    return values


FAILING = (
    Example(
        "the rollout leaves it out",
        rollout=[
            ("self.inner.step", "«self.inner.step»"),
            ("            include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,\n", ""),
        ],
    ),
    Example(
        "two values",
        training=("=INCLUDE_LOGPROB_NORMALIZER", "=«True»"),
        rollout=("=INCLUDE_LOGPROB_NORMALIZER", "=«INCLUDE_LOGPROB_NORMALIZER»"),
    ),
)
PASSING = (
    Example(
        "left out on both sides",
        training=("            include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,\n", ""),
        rollout=("            include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,\n", ""),
    ),
)
