"""The SDE scheduler is called by one of its two methods with an option of the other.

``step`` walks the schedule and answers as diffusers' schedulers do; ``sample_previous_step`` looks the step up and
computes the log-prob of a recorded sample. They share most options, not all: the call raises TypeError, in training
after the whole rollout has been paid for, and ``step`` would take training to another place of the schedule.

    scheduler.step(sample=…, model_output=…, prev_sample=…, return_sqrt_dt=True)

Instead: ``sample_previous_step`` in training, ``step`` in the rollout.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.sde import sampling_calls
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC234"
NAME = "foreign-step-option"
SEVERITY = "error"
CHECKLIST = ("T5", "R3")
APPLIES = Applies(objective="policy_gradient")
HELP = "call sample_previous_step() in training and step() in the rollout, each with its own options"
# Options of verl_omni.pipelines.schedulers.FlowMatchSDEDiscreteScheduler that only one of the two methods has.
_ONLY = {
    "step": {"s_churn", "s_tmin", "s_tmax", "s_noise", "return_dict"},
    "sample_previous_step": {"return_sqrt_dt"},
}
_OTHER = {"step": "sample_previous_step", "sample_previous_step": "step"}


def check(package: Package) -> Hits:
    """Compare the keywords of every sampling call with those that only the other method takes."""
    for name in ("training", "rollout"):
        side = side_of(package, name)
        taken = {
            (function.name, parameter)
            for function in side.functions
            for parameter in (*function.parameters, *(["**"] if function.kwarg else []))
        }
        for function, call in sampling_calls(side):
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if function.file not in package.files or method not in _ONLY or (method, "**") in taken:
                continue
            for item in call.keywords:
                if item.arg in _ONLY[_OTHER[method]] and (method, item.arg) not in taken:
                    yield Hit(function.file, item, f"{method}() takes no {item.arg}, {_OTHER[method]}() does")


FAILING = (
    Example(
        "training walks the schedule",
        {
            "training": [
                ("scheduler.sample_previous_step(", "scheduler.step("),
                ("return_sqrt_dt=True", "«return_sqrt_dt=True»"),
            ]
        },
    ),
    Example(
        "the rollout looks the step up",
        {
            "rollout": [
                ("self.inner.step(", "self.inner.sample_previous_step("),
                ("return_dict=False", "«return_dict=False»"),
            ]
        },
    ),
)
PASSING = (
    Example("each with its own"),
    Example("of diffusers", base="diffusers"),
)
