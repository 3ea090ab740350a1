"""The rollout asks the pipeline for another number of steps than the release needs.

vllm-omni 0.22 evaluated some models once more than training does for the same ``num_inference_steps``; 0.24 and
later do not. A correction that is left in place, or one that is missing, puts every step beside the one that training
recomputes: +5e-3 on the log-prob, 500 times the clip range, from the first step on.

    params.num_inference_steps = num_inference_steps - 1      # needed on 0.22 only

Instead: hand on the number as it comes; correct it only where the installed release counts otherwise.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import argument
from scaffold.check.model.dataflow import arguments
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import numbers, recorded, recorded_number, release
from scaffold.check.model.schedules import schedule_of
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.step_counts import NAME as STEPS
from scaffold.check.model.step_counts import step_count
from scaffold.check.model.step_requests import handed_steps, of_super
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC309"
NAME = "stale-step-compensation"
SEVERITY = "error"
CHECKLIST = ("R6", "pitfall 5")
APPLIES = Applies(objective="policy_gradient")
HELP = "let rollout and training take the same number of steps on the installed release"
_EVALUATIONS = {"n": 0, "n-1": -1, "n+1": 1}
_SPEAKS = (b"0.22", b"0_22", b"ompensat")


def check(package: Package) -> Hits:
    """Compare what is handed to the pipeline, and to the shared schedule, with what the release needs."""
    side, training = side_of(package, "rollout"), side_of(package, "training")
    needed = _needed(package, side)
    handed = list(handed_steps(side, release(package)))
    for function, node, offset in handed:
        # An assignment with nothing added puts the number back; it hands nothing to the pipeline.
        if needed is not None and offset not in (0, needed):
            version = ".".join(map(str, release(package) or ()))
            yield Hit(
                function.file,
                node,
                f"{STEPS} {offset:+d} is handed to the pipeline; vllm-omni {version} needs {needed or 0:+d}",
            )
    if needed and not any(offset == needed for _, _, offset in handed):
        yield from _missing(package, side, needed)
    yield from _unequal(side, training)
    yield from _points(package, training)


def _points(package: Package, training: Side) -> Hits:
    """Compare the number of noise levels that the shared schedule makes with the recorded number of evaluations."""
    steps = recorded(package, "schedule", "steps")
    if steps not in _EVALUATIONS:
        return
    for function in schedule_of(training).computed:
        ends = [part for part in function.nodes(ast.Slice) if isinstance(part, ast.Slice)]
        if len(ends) != 1 or ends[0].upper is None or function.file.value(ends[0].upper) != -1 or ends[0].lower:
            continue
        for call in function.calls:
            if function.file.qualified(call.func) not in ("torch.linspace", "numpy.linspace"):
                continue
            number = argument(call, "steps", 2) or argument(call, "num", 2)
            points = step_count(training, function, number) if number is not None else None
            if points is not None and points.function not in (None, function) and points.function.cls is not None:
                continue  # an adapter asks for more: the schedule itself is right
            if number is not None and points is not None and points.offset - 1 != _EVALUATIONS[steps]:
                made = f"n{points.offset - 1:+d}" if points.offset != 1 else "n"
                place = points.node if points.node is not None and points.function is function else number
                yield Hit(function.file, place, f"the schedule has {made} evaluations, the pipeline {steps}")


def _needed(package: Package, side: Side) -> int | None:
    """Return what has to be added for the installed release; None where that is not known."""
    installed = release(package)
    made_for = numbers(recorded(package, "upstream", "version"))
    offset = recorded_number(package, "schedule", "request_offset")
    if installed is None:
        return None
    if offset is not None and made_for is not None:
        if made_for == installed or (made_for >= (0, 24) and installed >= (0, 24)):
            return offset
        return 0 if installed >= (0, 24) else None
    spoken = any(mark in function.file.data for function in side.functions for mark in _SPEAKS)
    return 0 if spoken and installed >= (0, 24) else None


def _missing(package: Package, side: Side, needed: int) -> Hits:
    for adapter in side.adapters:
        method = adapter.method("forward")
        for call in method.calls if method is not None else ():
            if method is not None and of_super(call) and side.called(method, call) is None:
                yield Hit(
                    method.file,
                    call,
                    f"the request goes on as it is; vllm-omni {recorded(package, 'upstream', 'version')} "
                    f"needs {STEPS} {needed:+d}",
                )


def _unequal(side: Side, training: Side) -> Hits:
    """Compare the numbers with which both sides call a schedule function that they share."""
    for function in side.functions:
        if function not in training or function.cls is not None:
            continue
        for parameter in function.parameters:
            if "step" not in parameter:
                continue
            counts = [
                {step_count(one, caller, value) for caller, value in arguments(one, function, parameter)}
                for one in (side, training)
            ]
            if any(len(found) != 1 or None in found for found in counts):
                continue
            rollout, trained = counts[0].pop(), counts[1].pop()
            assert rollout is not None
            assert trained is not None
            if rollout.offset != trained.offset and not (function in side and _inner(side, training, function)):
                odd = rollout if rollout.node is not None else trained
                assert odd.function is not None
                assert odd.node is not None
                yield Hit(
                    odd.function.file,
                    odd.node,
                    f"rollout sets up {STEPS} {rollout.offset:+d} in {function.name}(), training {trained.offset:+d}",
                )


def _inner(side: Side, training: Side, function: FunctionModel) -> bool:
    """Whether the function is called by another one that both sides share, which is reported instead."""
    return any(caller in training for caller, _ in side.callers.get(function, []))


FAILING = (
    Example(
        "a correction for 0.22 left in place",
        rollout=(
            ")\n        output",
            (
                ")\n        # vllm-omni 0.22 takes one step more.\n        params.num_inference_steps = «int(params.num_inference_steps) - 1»\n        output"
            ),
        ),
    ),
    Example(
        "the schedule of the rollout is another one",
        rollout=("int(params.num_inference_steps)", "«int(params.num_inference_steps) + 1»"),
    ),
    Example(
        "the schedule of training is another one",
        training=("model_config.pipeline.num_inference_steps", "«model_config.pipeline.num_inference_steps - 1»"),
    ),
)
PASSING = (
    Example(
        "a correction for an older release",
        rollout=[
            ("import torch\n", "import torch\nimport vllm_omni\nfrom packaging.version import Version\n"),
            (
                ")\n        output",
                (
                    ")\n"
                    '        if Version(vllm_omni.__version__) <= Version("0.22"):\n'
                    "            params.num_inference_steps = params.num_inference_steps - 1\n        output"
                ),
            ),
        ],
    ),
    Example(
        "as many points as the release takes",
        spec=(
            "schema = 1\n\n[upstream]\n"
            'version = "0.27.0rc1"\nsteps = "n"\n'
            "\n[schedule]\n"
            'steps = "n"\n'
            "request_offset = 0\n"
        ),
        common=("max(num_inference_steps, 2)", "num_inference_steps + 1"),
    ),
    Example(
        "depends on the installed release",
        rollout=[
            ("to_checkpoint_key\n", "to_checkpoint_key\n\nVERSION = (0, 27)\n"),
            (
                ")\n        output",
                (
                    ")\n        if VERSION < (0, 24):  # 0.22 takes one step more\n            params.num_inference_steps = params.num_inference_steps - 1\n        output"
                ),
            ),
        ],
    ),
)
