"""The rollout records latents in low precision, or feeds its scheduler with them.

Training recomputes each log-prob from the recorded latents. Rounded to bfloat16, they are not those that the
log-prob was computed from: the ratio at the first step is below 1, only the lower clip acts, and the gradient is
biased from then on.

    self.latents.append(prev_sample.to(torch.bfloat16))

Instead: hand float32 to the scheduler, keep the trajectory float32, and cast a copy for the model.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.precision import Given, dtype_of, is_float32
from scaffold.check.model.sde import appended, options, sampling_argument, sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.streams import root_name
from scaffold.check.model.window_records import is_of_result
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC315"
NAME = "low-precision-trajectory"
SEVERITY = "warning"
CHECKLIST = ("pitfall 13",)
APPLIES = Applies(objective="policy_gradient")
HELP = "keep it float32: .float() before the scheduler and for what is recorded"
RECORDED = ("trajectory_latents", "trajectory_log_probs", "trajectory_timesteps")
# As releases before ``rollout_output()`` name them, in the dictionary of the result.
_RECORDED_BEFORE = ("all_latents", "all_log_probs")
_RESULTS = {"rollout_output", "with_rollout_data", "DiffusionOutput"}
_LOW = {"torch.bfloat16", "torch.float16", "torch.half"}


def check(package: Package) -> Hits:
    """Look at the velocity that the scheduler gets, and at everything that the trajectory is made of."""
    side = side_of(package, "rollout")
    wrappers = {cls for adapter in side.adapters for cls in _schedulers(side, adapter)}

    def given(function: FunctionModel, name: str) -> bool | None:
        # The upstream pipeline calls the wrapper's step() in the engine's precision, and its modules work in it.
        if name == "module()":
            return False
        called = name.endswith("()")
        return False if function.name == "step" and function.cls in wrappers and not called else None

    def predicted(function: FunctionModel, name: str) -> bool | None:
        return False if name == "upstream()" else given(function, name)

    seen: set[ast.AST] = set()
    for function, call in sampling_calls(side):
        value = sampling_argument(call, "model_output")
        if value is not None and is_float32(side, function, value, predicted) is False:
            seen.add(value)
            yield Hit(function.file, value, "the scheduler gets the velocity in the engine's precision")
    for function, value in _results(side):
        for around, node in _casts(side, function, value):
            if node not in seen:
                seen.add(node)
                yield Hit(around.file, node, f"the trajectory is recorded in low precision: {ast.unparse(node)}")
        for around, node in _rounded(side, function, value, given):
            if node not in seen:
                seen.add(node)
                yield Hit(
                    around.file, node, f"the trajectory is recorded in the engine's precision: {ast.unparse(node)}"
                )
        for around, node in _returned_rounded(side, function, value, given):
            if node not in seen:
                seen.add(node)
                text = f"{ast.unparse(node)} goes on in another precision than the sample that is recorded"
                yield Hit(around.file, node, text, "return what is recorded, and cast a copy for the model")
        for around, append in _appends(side, function, value):
            entry = append.args[0] if append.args else None
            if entry is not None and entry not in seen and not _has_cast(around, entry):
                if is_float32(side, around, entry, given) is False:
                    seen.add(entry)
                    yield Hit(around.file, entry, f"{ast.unparse(entry)} is recorded in the engine's precision")


def _schedulers(side: Side, adapter: object) -> Iterator[object]:
    for function in side.functions:
        if function.name == "step" and function.cls is not None and function.cls is not adapter:
            yield function.cls


def _results(side: Side) -> Iterator[tuple[FunctionModel, ast.expr]]:
    for name in (*RECORDED[:2], *_RECORDED_BEFORE):
        for option in options(side, name):
            yield option.function, option.value


def _appends(side: Side, function: FunctionModel, value: ast.expr) -> Iterator[tuple[FunctionModel, ast.Call]]:
    found: dict[ast.Call, FunctionModel] = {}
    for around, _, node in origin(side, function, value).nodes:
        if around is not None and isinstance(node, (ast.Name, ast.Attribute)):
            found.update({call: other for other, call in appended(side, around, node)})
    yield from ((other, call) for call, other in found.items())


def _casts(side: Side, function: FunctionModel, value: ast.expr) -> Iterator[tuple[FunctionModel, ast.AST]]:
    """Yield the casts to low precision on the way of a recorded value."""
    places = [(function, value), *((f, call.args[0]) for f, call in _appends(side, function, value) if call.args)]
    for start, expr in places:
        for around, _, node in _on_the_way(side, start, expr):
            if isinstance(node, ast.Call) and _is_low(around, node):
                yield around, node


def _rounded(
    side: Side, function: FunctionModel, value: ast.expr, given: Given
) -> Iterator[tuple[FunctionModel, ast.Call]]:
    """Yield where a recorded value takes the precision of a tensor that is certainly the engine's."""
    for around, append in _appends(side, function, value):
        entry = append.args[0] if append.args else None
        for call in around.file.index.nodes(ast.Call, entry) if entry is not None else ():
            like = dtype_of(call)
            if like is not None and not _of_other_use(side, around, call):
                if is_float32(side, around, like, given) is False:
                    yield around, call


def _returned_rounded(
    side: Side, function: FunctionModel, value: ast.expr, given: Given
) -> Iterator[tuple[FunctionModel, ast.Call]]:
    """Yield where ``step`` gives the pipeline a rounded copy of the very name that it records as it is."""
    for around, append in _appends(side, function, value):
        entry = append.args[0] if append.args else None
        if around.name != "step" or not isinstance(entry, ast.Name) or not is_of_result(side, around, entry):
            continue
        index = around.file.index
        for item in around.returns:
            for call in index.nodes(ast.Call, item.value) if item.value is not None else ():
                target, like = call.func, dtype_of(call)
                coarse = like is not None and is_float32(side, around, like, given) is False
                if (
                    (coarse or _is_low(around, call))
                    and isinstance(target, ast.Attribute)
                    and root_name(target.value) == entry.id
                ):
                    yield around, call


def _on_the_way(side: Side, function: FunctionModel, expr: ast.expr) -> Iterator[tuple[FunctionModel, object, ast.AST]]:
    for around, file, node in origin(side, function, expr).nodes:
        # What only goes into the model, or is widened again, is no record.
        if around is not None and isinstance(node, ast.Call) and not _of_other_use(side, around, node):
            yield around, file, node


def _of_other_use(side: Side, function: FunctionModel, call: ast.Call) -> bool:
    index = function.file.index
    inner: ast.AST = call
    for outer in index.ancestors(call):
        if isinstance(outer, ast.stmt):
            return False
        if isinstance(outer, ast.Call) and outer.func is not inner:
            name = function.file.qualified(outer.func) or ""
            known = name.startswith("torch.") or name.rpartition(".")[2] in _RESULTS or side.called(function, outer)
            if not known and not _appending(outer):
                return True
        if isinstance(outer, ast.Attribute) and outer.attr in ("float", "double"):
            return True
        inner = outer
    return False


def _appending(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "stack", "cat")


def _is_low(function: FunctionModel, call: ast.Call) -> bool:
    target = call.func
    if not isinstance(target, ast.Attribute):
        return False
    if target.attr in ("half", "bfloat16") and not call.args:
        return True
    values = [*call.args, *(item.value for item in call.keywords if item.arg == "dtype")]
    return target.attr in ("to", "type") and any(function.file.qualified(value) in _LOW for value in values)


def _has_cast(function: FunctionModel, entry: ast.expr) -> bool:
    return any(_is_low(function, call) for call in function.file.index.nodes(ast.Call, entry))


_APPEND = "            self._latents.append(prev_sample)\n"
_WHEEL = "verl_omni/pipelines/wheel_flow_grpo/vllm_omni_rollout_adapter.py"
FAILING: tuple[Example, ...] = (
    Example(
        "cast where it is recorded",
        {"rollout": [(_APPEND, "            self._latents.append(«prev_sample.to(torch.bfloat16)»)\n")]},
    ),
    Example(
        "cast to the model's precision",
        {"rollout": [(_APPEND, "            self._latents.append(«prev_sample.to(model_output.dtype)»)\n")]},
    ),
    Example(
        "recorded as it is, and rounded for the next step",
        {"rollout": [("_StepOutput(prev_sample[0]", "_StepOutput(«prev_sample[0].to(model_output.dtype)»")]},
    ),
    Example(
        "cast to the precision that came",
        {
            "rollout": [
                (
                    "        sample = sample.float()[None]\n",
                    "        given = sample\n        sample = sample.float()[None]\n",
                ),
                (_APPEND, "            self._latents.append(«prev_sample.type_as(given)»)\n"),
            ]
        },
    ),
    Example(
        "cast at the end",
        {"rollout": [("torch.stack(self._latents, dim=1).cpu()", "«torch.stack(self._latents, dim=1).cpu().half()»")]},
    ),
    Example(
        "cast in the result",
        {"rollout": [("trajectory_latents=latents,", "trajectory_latents=«latents.to(dtype=torch.bfloat16)»,")]},
    ),
    Example(
        "recorded as it comes",
        {
            "rollout": [
                ("sample = sample.float()[None]", "sample = sample[None]"),
                ("                self._latents.append(sample)", "                self._latents.append(«sample»)"),
            ]
        },
    ),
    Example(
        "the scheduler's velocity",
        {"rollout": [("model_output=model_output.float()[None]", "model_output=«model_output[None]»")]},
    ),
    Example(
        "in a loop of the adapter's own",
        {
            _WHEEL: [
                (
                    "                trajectory.append(latents)\n",
                    "                trajectory.append(«latents.bfloat16()»)\n",
                )
            ]
        },
        base="diffusers",
    ),
)
FAILING += (
    Example(
        "the velocity as the pipeline computes it",
        {_WHEEL: [("                velocity.float(),\n", "                «velocity»,\n")]},
        base="diffusers",
    ),
    Example(
        "rounded for the model before it is recorded",
        {
            _WHEEL: [
                (
                    "            if inside:\n                trajectory.append(latents)\n",
                    "            latents = latents.to(self.transformer.proj_in.weight.dtype)\n"
                    "            if inside:\n                trajectory.append(«latents»)\n",
                )
            ]
        },
        base="diffusers",
    ),
)
PASSING = (
    Example(
        "rounded for the model after it is recorded",
        {
            _WHEEL: [
                (
                    "                log_probs.append(log_prob)\n",
                    "                log_probs.append(log_prob)\n"
                    "            latents = latents.to(self.transformer.proj_in.weight.dtype)\n",
                )
            ]
        },
        base="diffusers",
    ),
    Example(
        "as wide as it was",
        {"rollout": [(_APPEND, "            self._latents.append(prev_sample.to(sample.dtype))\n")]},
    ),
    Example("float32 throughout"),
    Example(
        "a copy for the model",
        {_WHEEL: [("self.predict(latents, timestep", "self.predict(latents.to(torch.bfloat16), timestep")]},
        base="diffusers",
    ),
    Example("the media", {"rollout": [("media=output.output,", "media=output.output.half(),")]}),
)
