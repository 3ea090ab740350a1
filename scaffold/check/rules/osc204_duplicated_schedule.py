"""Rollout and training compute their noise schedules apart from each other.

A log-prob belongs to a noise level. Written twice, the formula is changed in one place: every step of training then
looks up a level that the rollout never stood at, or finds none. That both walk one schedule, `verify` measures.

    # rollout adapter                                   # training adapter
    sigmas = shift(torch.linspace(1, 0, steps))          sigmas = torch.linspace(1, 1 / steps, steps)

Instead: one function in ``common.py`` that both adapters set their scheduler up with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import ending, keyword
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC204"
NAME = "duplicated-schedule"
SEVERITY = "error"
CHECKLIST = ("T3", "pitfall 30")
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
HELP = "move the schedule into a function that both adapters call"
_SPACED = ("linspace", "logspace", "arange", "geomspace")
_GIVEN = ("sigmas", "timesteps")


def check(package: Package) -> Hits:
    """Compare where the two sides get their noise levels from."""
    training, rollout = side_of(package, "training"), side_of(package, "rollout")
    if not training.functions or not rollout.functions:
        return
    trained, sampled = _computed(training), _computed(rollout)
    if trained and sampled:
        # What lies beside the adapters is where the schedule is to stay, if there is such a place.
        apart = {**_only(trained, sampled, "training"), **_only(sampled, trained, "the rollout")}
        adapters = {cls.file for cls in (*training.adapters, *rollout.adapters)}
        for function in [f for f in apart if f.file in adapters] or list(apart):
            node, which = apart[function]
            yield Hit(function.file, node, f"{which} computes a noise schedule of its own here")
        return
    for side, other, which in ((training, sampled, "training"), (rollout, trained, "the rollout")):
        for function, call in _plain(side) if other else ():
            text = f"{which} takes the scheduler's default schedule here, the other side a computed one"
            yield Hit(function.file, call, text)


def _only(
    one: dict[FunctionModel, ast.AST], other: dict[FunctionModel, ast.AST], which: str
) -> dict[FunctionModel, tuple[ast.AST, str]]:
    return {function: (node, which) for function, node in one.items() if function not in other}


def _computed(side: Side) -> dict[FunctionModel, ast.AST]:
    """Return the functions that space the noise levels which a scheduler gets, with the expression."""
    found: dict[FunctionModel, ast.AST] = {}
    for function, value in _given(side):
        for around, _, node in origin(side, function, value).nodes:
            spaced = isinstance(node, ast.Call) and ending(node.func) in _SPACED
            if around is not None and around in side and (spaced or isinstance(node, ast.ListComp)):
                found[around] = node
    return found


def _given(side: Side) -> Iterator[tuple[FunctionModel, ast.expr]]:
    """Yield what a scheduler gets as ``sigmas`` and ``timesteps``."""
    for function, call in side.calls("set_timesteps"):
        yield from ((function, value) for name in _GIVEN if (value := keyword(call, name)) is not None)
    for function in side.functions:
        for statement in function.file.index.nodes(ast.Assign, function.node):
            for target in statement.targets:
                if isinstance(target, ast.Attribute) and target.attr in _GIVEN:
                    if ast.unparse(target.value) != function.bound:
                        yield function, statement.value


def _plain(side: Side) -> Iterator[tuple[FunctionModel, ast.Call]]:
    """Yield the calls of ``set_timesteps`` of a scheduler that are given neither sigmas nor timesteps."""
    for function, call in side.calls("set_timesteps"):
        target = call.func
        own = isinstance(target, ast.Attribute) and ast.unparse(target.value) in (function.bound, "super()")
        if not own and side.called(function, call) is None and not {k.arg for k in call.keywords} & {*_GIVEN, None}:
            yield function, call


FAILING = (
    Example(
        "the rollout takes the scheduler's default",
        rollout=(
            "count = len(setup_toy_sigmas(self.inner, num_inference_steps))",
            "«self.inner.set_timesteps(num_inference_steps)»\n        count = num_inference_steps",
        ),
    ),
)
PASSING = (
    Example(
        "the number of steps in a name",
        training=(
            "setup_toy_sigmas(scheduler, model_config.pipeline.num_inference_steps",
            ("steps = model_config.pipeline.num_inference_steps\n        setup_toy_sigmas(scheduler, steps"),
        ),
    ),
)
