"""The rollout records latents in low precision, or feeds its scheduler with them.

Training recomputes each log-prob from the recorded latents. Rounded to bfloat16, they are not those that the
log-prob was computed from: the ratio at the first step is below 1, only the lower clip acts, and the gradient is
biased from then on. What a run records, `verify` measures (``float32-kept``).

    self.latents.append(prev_sample.to(torch.bfloat16))

Instead: hand float32 to the scheduler, keep the trajectory float32, and cast a copy for the model.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.dataflow import arguments, origin, reaching
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sde import appended, options, sampling_argument, sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC315"
NAME = "low-precision-trajectory"
SEVERITY = "warning"
CHECKLIST = ("pitfall 13",)
APPLIES = Applies(objective="policy_gradient")
HELP = "keep it float32: .float() before the scheduler and for what is recorded"
# The last is how releases before ``rollout_output()`` name it.
RECORDED = ("trajectory_latents", "trajectory_log_probs", "all_latents")
_LOW = {"torch.bfloat16", "torch.float16", "torch.half"}
_FULL = ("float", "double")


def check(package: Package) -> Hits:
    """Look at the velocity that the scheduler gets, and at what is appended to the trajectory."""
    side = side_of(package, "rollout")
    for function, call in sampling_calls(side):
        value = sampling_argument(call, "model_output")
        if value is not None and _is_the_models(side, function, value):
            yield Hit(function.file, value, "the scheduler gets the velocity in the engine's precision")
    seen: set[ast.AST] = set()
    for option in (option for name in RECORDED for option in options(side, name)):
        places: list[tuple[FunctionModel, ast.expr]] = [(option.function, option.value)]
        for around, _, node in origin(side, option.function, option.value).nodes:
            if around is not None and isinstance(node, (ast.Name, ast.Attribute)):
                places += [(other, call.args[0]) for other, call in appended(side, around, node) if call.args]
        for function, entry in places:
            low = _low(function, entry)
            if low is not None and low not in seen:
                seen.add(low)
                yield Hit(function.file, low, f"the trajectory is recorded in low precision: {ast.unparse(low)}")


def _is_the_models(side: Side, function: FunctionModel, value: ast.expr, hops: int = 6) -> bool:
    """Whether a velocity certainly is what the model, or the pipeline's caller, gave, with nothing widening it."""
    if not hops or any(word in ast.unparse(value) for word in _FULL):
        return False
    if isinstance(value, ast.Name):
        for binding in reaching(function, value):
            if binding.kind == "parameter":
                calls = list(arguments(side, function, value.id))
                own = not calls and function.name == "step" and function.cls not in side.adapters
                if own or any(_is_the_models(side, caller, given, hops - 1) for caller, given in calls):
                    return True
            elif binding.value is not None and _is_the_models(side, function, binding.value, hops - 1):
                return True
        return False
    if isinstance(value, ast.Subscript):
        return _is_the_models(side, function, value.value, hops - 1)
    if not isinstance(value, ast.Call):
        return False
    if ast.unparse(value.func).endswith("transformer"):
        return True
    called = side.called(function, value)
    plain = called is not None and not any(word in ast.unparse(called.node) for word in _FULL)
    return plain and any(_is_the_models(side, function, given, hops - 1) for given in value.args)


def _low(function: FunctionModel, entry: ast.expr, hops: int = 2) -> ast.Call | None:
    """Return the cast to low precision that a recorded value is, or that its name was last given."""
    for node in function.file.index.walk(entry):
        if isinstance(node, ast.Attribute) and node.attr in ("float", "double"):
            return None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = [*node.args, *(item.value for item in node.keywords if item.arg == "dtype")]
            named = any(function.file.qualified(value) in _LOW for value in given)
            of_model = any(_is_another_dtype(function, value) for value in given)
            if node.func.attr in ("half", "bfloat16") or (node.func.attr == "to" and (named or of_model)):
                return node
    if hops and isinstance(entry, ast.Name):
        for binding in reaching(function, entry):
            if isinstance(binding.value, ast.Call) and (found := _low(function, binding.value, hops - 1)) is not None:
                return found
    return None


def _is_another_dtype(function: FunctionModel, value: ast.expr) -> bool:
    """Whether a value is ``x.dtype`` of something that nothing here made float32."""
    if not isinstance(value, ast.Attribute) or value.attr != "dtype":
        return False
    made = [b.value for b in reaching(function, value.value)] if isinstance(value.value, ast.Name) else []
    return not any(one is not None and "float" in ast.unparse(one) for one in made)


FAILING = (
    Example("cast where it is recorded", rollout=("(prev_sample)", "(«prev_sample.to(torch.bfloat16)»)")),
    Example("the scheduler's velocity", rollout=("model_output.float()[None]", "«model_output[None]»")),
)
PASSING = (Example("as wide as it was", rollout=("prev_sample)", "prev_sample.to(sample.dtype))")),)
