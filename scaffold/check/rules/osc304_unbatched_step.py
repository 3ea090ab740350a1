"""The scheduler's wrapper steps on tensors without a batch dimension.

The pipeline of such a model holds (tokens, channels). The scheduler means over all dimensions but the first: without a
batch dimension every token gets a log-prob of its own, and training recomputes one for each sample.

    self.inner.step(model_output=model_output.float(), sample=sample.float(), …)     # (tokens, channels)

Instead: put a batch dimension on both, ``[None]``, and take it off what the pipeline gets back.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC304"
NAME = "unbatched-step"
SEVERITY = "error"
CHECKLIST = ("R4",)
APPLIES = Applies(objective="policy_gradient")
HELP = "hand on batched tensors: model_output[None], sample[None]"
_KEEPING = ("float", "to", "type", "clone", "detach", "contiguous", "double", "cpu", "cuda")


def check(package: Package) -> Hits:
    """Look whether both tensors of a wrapper's step get a batch dimension."""
    side = side_of(package, "rollout")
    flat = package.facts.number("upstream", "sample_rank") == 2
    for function, call in sampling_calls(side):
        if function.name != "step" or function.cls is None or function.cls in side.adapters:
            continue
        values = {name: sampling_argument(call, name) for name in ("model_output", "sample")}
        batched = {name: _batched(function, value) for name, value in values.items() if value is not None}
        # Known from the upstream pipeline; or the log-prob is averaged by hand; or one of the two has the dimension.
        if flat or True in batched.values() or _averages(function):
            for name, value in values.items():
                if value is not None and batched[name] is False:
                    text = f"{name} has no batch dimension, so that each token gets a log-prob of its own"
                    yield Hit(function.file, value, text)


def _batched(function: FunctionModel, value: ast.expr, hops: int = 8) -> bool | None:
    """Whether a tensor gets a batch dimension: True, False where a parameter goes through, None if the text does not tell."""
    if not hops:
        return None
    if isinstance(value, ast.Subscript):
        first = value.slice.elts[0] if isinstance(value.slice, ast.Tuple) and value.slice.elts else value.slice
        return True if isinstance(first, ast.Constant) and first.value is None else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        name = value.func.attr
        given = function.file.value(value.args[0]) if value.args else None
        if name in ("unsqueeze", "reshape", "view", "stack"):
            return True if name == "stack" or given == (0 if name == "unsqueeze" else 1) else None
        return _batched(function, value.func.value, hops - 1) if name in _KEEPING else None
    if isinstance(value, ast.Name):
        bindings = reaching(function, value)
        if len(bindings) == 1 and bindings[0].kind == "parameter":
            return False
        if len(bindings) == 1 and bindings[0].value is not None:
            return _batched(function, bindings[0].value, hops - 1)
    return None


def _averages(function: FunctionModel) -> bool:
    """Whether a step averages all numbers of a tensor into one, as only log-probs of single tokens would be."""
    methods = [call for call in function.calls if isinstance(call.func, ast.Attribute) and call.func.attr == "mean"]
    return any(len(call.args) <= 1 and not call.keywords for call in methods)


FAILING = (
    Example("the velocity", rollout=("model_output.float()[None]", "«model_output.float()»")),
    Example("the latents", rollout=[("float()[None]\n", "float()\n"), ("sample=sample", "sample=«sample»")]),
)
PASSING = (Example("and another one behind it", rollout=("float()[None],\n", "float()[None][:, None],\n")),)
