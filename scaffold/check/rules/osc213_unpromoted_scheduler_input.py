"""Training feeds the scheduler tensors that nothing made float32.

A log-prob is a sum of squares of small differences. In bfloat16 the latents and the velocity are off by 1e-2
relative, the ratio at the first step stays below 1, and only the lower clip ever acts. verl-omni's scheduler asserts
float32 and stops the run; a scheduler of your own may not.

    scheduler.sample_previous_step(sample=latents[:, step], model_output=module(**inputs)[0], …)

Instead: ``latents[:, step].float()``, ``module(**inputs)[0].float()``, and ``.float()`` on the previous sample.
"""

from __future__ import annotations

import ast

from scaffold.check.editing import replace_expression
from scaffold.check.example import Example
from scaffold.check.model.calls import bind, resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.precision import is_float32
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.streams import root_name
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC213"
NAME = "unpromoted-scheduler-input"
SEVERITY = "warning"
CHECKLIST = ("pitfall 13",)
APPLIES = Applies(objective="policy_gradient")
HELP = "add .float() to it"
FIX_SAFETY = "safe"
_TENSORS = ("sample", "model_output", "prev_sample")
_BATCH = {"module()", "scheduler_inputs", "model_inputs", "micro_batch", "latents"}


def check(package: Package) -> Hits:
    """Follow the three tensors back to the module's output and to the batch."""
    side = side_of(package, "training")
    yield from _levels(package, side)
    for function, call in sampling_calls(side):
        for name in _TENSORS:
            value = sampling_argument(call, name)
            if value is not None and is_float32(side, function, value, _given) is False:
                yield Hit(
                    function.file, value, f"{name} goes to the scheduler in the precision of the model or the batch"
                )


def _levels(package: Package, side: Side) -> Hits:
    """Look for noise levels that are rounded to the parameters' dtype before the module makes features of them."""
    for adapter in side.adapters if package.is_non_diffusers else ():
        method = adapter.method("prepare_model_inputs")
        for call in method.calls if method is not None and method.file in package.files else ():
            target = call.func
            if not isinstance(target, ast.Attribute) or target.attr != "to" or len(call.args) != 1 or method is None:
                continue
            level = root_name(target.value) if len(method.positional) > 3 else None
            dtype = call.args[0]
            of_module = (
                isinstance(dtype, ast.Attribute) and dtype.attr == "dtype" and "parameters(" in ast.unparse(dtype)
            )
            if of_module and level is not None and level == method.positional[3] and _widened(method, call):
                text = "the noise level is rounded to the dtype of the parameters"
                yield Hit(method.file, call, text, "keep it in float32", fixable=False)


def _widened(method: FunctionModel, call: ast.Call) -> bool:
    """Whether what is rounded is made float32 right after, so that the rounding serves nothing."""
    above = method.file.index.parent(call)
    if isinstance(above, ast.Attribute):
        return above.attr in ("float", "double")
    called = resolve(method.file, above) if isinstance(above, ast.Call) else None
    if not isinstance(called, FunctionModel) or not isinstance(above, ast.Call):
        return False
    name = next((name for name, value in bind(above, called).items() if value is call), None)
    return any(
        node.attr in ("float", "double") and isinstance(node.value, ast.Name) and node.value.id == name
        for node in called.file.index.nodes(ast.Attribute, called.node)
    )


def _given(function: FunctionModel, name: str) -> bool | None:
    return False if name in _BATCH else None


def fix(hit: Hit) -> str | None:
    """Convert it where it is handed over."""
    assert isinstance(hit.file, PythonFile)
    assert isinstance(hit.at, ast.expr)
    code = ast.get_source_segment(hit.file.text, hit.at)
    if code is None:
        return None
    plain = isinstance(hit.at, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return replace_expression(hit.file, hit.at, f"{code}.float()" if plain else f"({code}).float()")


_VELOCITY = "velocity = module(**model_inputs)[0]"
FAILING = (
    Example(
        "the noise level",
        {
            "training": [
                (
                    '"timestep": timesteps[:, step],',
                    '"timestep": «timesteps[:, step].to(next(module.parameters()).dtype)».float(),',
                )
            ]
        },
    ),
    Example("the sample", {"training": [("sample=latents[:, step].float()", "sample=«latents[:, step]»")]}),
    Example(
        "the previous sample",
        {"training": [("prev_sample=latents[:, step + 1].float()", "prev_sample=«latents[:, step + 1]»")]},
    ),
    Example(
        "the velocity",
        {
            "training": [
                (_VELOCITY + ".float()", _VELOCITY),
                (
                    "unconditional = module(**negative_model_inputs)[0].float()",
                    "unconditional = module(**negative_model_inputs)[0]",
                ),
                ("model_output=velocity", "model_output=«velocity»"),
            ]
        },
    ),
    Example("made half", {"training": [("model_output=velocity", "model_output=«velocity.to(torch.bfloat16)»")]}),
    Example(
        "in a model of diffusers",
        {
            "verl_omni/pipelines/wheel_flow_grpo/diffusers_training_adapter.py": [
                ("sample=latents[:, step].float()", "sample=«latents[:, step]»")
            ]
        },
        base="diffusers",
    ),
)
PASSING = (
    Example("all three converted"),
    Example(
        "converted on the way",
        {
            "training": [
                (
                    'scheduler_inputs["all_latents"], scheduler_inputs["all_timesteps"]',
                    'scheduler_inputs["all_latents"].float(), scheduler_inputs["all_timesteps"]',
                ),
                ("sample=latents[:, step].float()", "sample=latents[:, step]"),
            ]
        },
    ),
    Example(
        "converted at the end",
        {
            "training": [
                (_VELOCITY + ".float()", _VELOCITY),
                (
                    "unconditional = module(**negative_model_inputs)[0].float()",
                    "unconditional = module(**negative_model_inputs)[0]",
                ),
                ("model_output=velocity", "model_output=velocity.to(dtype=torch.float32)"),
            ]
        },
    ),
)
