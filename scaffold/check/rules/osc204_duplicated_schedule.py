"""Rollout and training compute their noise schedules apart from each other.

A step's log-prob depends on its noise level and on the next one. Two computations of "the same" schedule differ by a
shift, an end point, a rounding or the device sooner or later, and then training recomputes every step at another
noise level than it was sampled at.

    # rollout adapter                              # training adapter
    sigmas = torch.linspace(1, 0, n + 1)[:-1]        sigmas = np.linspace(1, 1 / n, n)

Instead: one function in ``common.py`` that sets a scheduler up, called by both adapters with the same arguments.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.dataflow import arguments, origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.schedule_arguments import (
    called_within,
    constant_count,
    given_nodes,
    is_only_moved,
    sets_up_schedule,
)
from scaffold.check.model.schedules import Schedule, schedule_of, stored
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.values import known
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC204"
NAME = "duplicated-schedule"
SEVERITY = "error"
CHECKLIST = ("T3", "pitfall 30")
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
_NAMES = {"training": "training", "rollout": "the rollout"}
HELP = "set the scheduler up in one shared function, and call it from both adapters with the same arguments"


def check(package: Package) -> Hits:
    """Compare where the two sides get their noise levels from."""
    training, rollout = side_of(package, "training"), side_of(package, "rollout")
    if not training.functions or not rollout.functions:
        return
    trained, sampled = schedule_of(training), schedule_of(rollout)
    adapters = {cls.file for cls in (*training.adapters, *rollout.adapters)}
    if trained.computed and sampled.computed:
        apart = [*_only(trained, sampled, "training"), *_only(sampled, trained, "rollout")]
        # What lies beside the adapters is where the schedule is to stay, if there is such a place.
        elsewhere = [item for item in apart if item[0].file in adapters]
        if len(elsewhere) == len(apart) and not trained.computed.keys() & sampled.computed.keys():
            elsewhere = [item for item in apart if item[2] == "rollout"]
        for function, node, which in elsewhere or apart:
            yield Hit(function.file, node, f"{_NAMES[which]} computes a noise schedule of its own here")
    elif trained.computed or sampled.computed:
        own, other, which, than = (
            (sampled, rollout, "rollout", "training")
            if trained.computed
            else (trained, training, "training", "rollout")
        )
        for function, call in own.plain:
            yield Hit(
                function.file,
                call,
                f"{_NAMES[which]} takes the scheduler's default schedule here, {_NAMES[than]} a computed one",
            )
        if which == "rollout" and not own.set_up and not _delegates(other):
            for adapter in other.adapters:
                method = adapter.method("forward")
                if method is not None:
                    yield Hit(method.file, method.node, "the rollout never sets up the schedule that training computes")
    yield from _different_arguments(training, rollout)
    if trained.computed.keys() & sampled.computed.keys():
        for side, which in ((training, "training"), (rollout, "the rollout")):
            yield from _stored_later(side, rollout if side is training else training, which)
            yield from _changed_later(side, rollout if side is training else training, which)


def _changed_later(side: Side, other: Side, which: str) -> Hits:
    """Look for what one side alone does to its scheduler, beside the function that both set it up with."""
    for function, call in side.calls("set_timesteps", "set_shift"):
        target = call.func
        if function in other or not isinstance(target, ast.Attribute) or side.called(function, call) is not None:
            continue
        if isinstance(target.value, ast.Name) and target.value.id == function.bound:
            continue
        if isinstance(target.value, ast.Call):
            continue  # ``super().set_timesteps(…)``
        if not schedule_of(side).computed.keys() & {around for around, _ in given_nodes(side, function, call)}:
            yield Hit(function.file, call, f"{which} changes the shared schedule here, the other side does not")


def _stored_later(side: Side, other: Side, which: str) -> Hits:
    """Look for timesteps and sigmas that one side alone changes."""
    for function, value in stored(side):
        if function in other or schedule_of(side).computed.keys() & {
            a for a, _, _ in origin(side, function, value).nodes
        }:
            continue
        if any(isinstance(n, (ast.BinOp, ast.Call)) for n in function.file.index.walk(value)):
            read = {n.attr for n in function.file.index.nodes(ast.Attribute, value)}
            if read & {"timesteps", "sigmas"} and not is_only_moved(value):
                yield Hit(function.file, value, f"{which} changes the shared schedule here, the other side does not")


def _only(one: Schedule, other: Schedule, which: str) -> list[tuple[FunctionModel, ast.AST, str]]:
    return [(function, node, which) for function, node in one.computed.items() if function not in other.computed]


def _delegates(side: Side) -> bool:
    """Whether upstream may set the schedule up through one of the package's classes, or on a scheduler of its own."""
    made = any(function.name in ("set_timesteps", "__getattr__") for function in side.functions)
    return made or not any(function.name == "step" for function in side.functions)


def _different_arguments(training: Side, rollout: Side) -> Hits:
    """Compare the plain arguments with which both sides call what they share."""
    for function in rollout.functions:
        shared = function in training and function.cls is None and not called_within(training, rollout, function)
        if not shared or not sets_up_schedule(function):
            continue
        for parameter in function.parameters:
            values = []
            for side in (training, rollout):
                given = [
                    (caller, value, caller.file.value(value)) for caller, value in arguments(side, function, parameter)
                ]
                default = function.default(parameter)
                calls = side.callers.get(function, [])
                if len(given) < len(calls) and default is not None:
                    given += [(function, default, function.file.value(default))]
                values.append(given)
            plain = [{repr(value) for _, _, value in given if known(value)} for given in values]
            yield from constant_count(training, rollout, function, parameter, values)
            certain = all(given and all(known(value) for _, _, value in given) for given in values)
            if certain and plain[0] != plain[1] and not {"None"} & (plain[0] | plain[1]):
                side_values = values[1] if any(caller is not function for caller, _, _ in values[1]) else values[0]
                caller, node, value = next(item for item in side_values if item[0] is not function)
                yield Hit(
                    caller.file,
                    node,
                    f"{function.name}() gets {parameter}={value!r} here and another one on the other side",
                )


FAILING = (
    Example(
        "scaled afterwards",
        training=(
            "num_inference_steps, device=device)\n",
            ("num_inference_steps, device=device)\n        scheduler.timesteps = «scheduler.timesteps * 1000»\n"),
        ),
    ),
    Example(
        "the rollout takes the scheduler's default",
        rollout=(
            "count = len(setup_toy_sigmas(self.inner, num_inference_steps))",
            "«self.inner.set_timesteps(num_inference_steps)»\n        count = num_inference_steps",
        ),
    ),
    Example("a number of steps of training's own", training=("model_config.pipeline.num_inference_steps", "«15»")),
)
PASSING = (
    Example(
        "the number of steps in a name",
        training=(
            "setup_toy_sigmas(scheduler, model_config.pipeline.num_inference_steps",
            ("steps = model_config.pipeline.num_inference_steps\n        setup_toy_sigmas(scheduler, steps"),
        ),
    ),
    Example(
        "the same shift on both sides",
        common=(
            ("device=None) -> list[float]:\n    sigmas = toy_sigmas(num_inference_steps)\n    scheduler.set_shift(1.0"),
            (
                "shift=3.0, device=None) -> list[float]:\n    sigmas = toy_sigmas(num_inference_steps)\n    scheduler.set_shift(shift"
            ),
        ),
        rollout=(" num_inference_steps)", " num_inference_steps, shift=3.0)"),
    ),
)
