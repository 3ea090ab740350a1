"""The scheduler's wrapper steps on tensors without a batch dimension.

The scheduler averages the log-prob over all dimensions but the first. Of ``(tokens, channels)`` it makes one
log-prob a token, of ``(1, tokens, channels)`` one a sample, as training does. The wrong one has a shape that
broadcasts against advantages, and nothing fails.

    self.inner.step(model_output, timestep, sample)         # the pipeline's latents are (tokens, channels)

Instead: put a batch dimension on the velocity and on the latents, ``x[None]``, and take it off the result.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.arms import arms
from scaffold.check.model.batch_dimensions import KEEPING, in_front
from scaffold.check.model.dataflow import arguments, bound_value, origin, reaching, unpacked_at
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_dimensions import TENSORS, new_latents, put_on, recorded_unbatched
from scaffold.check.model.recorded_facts import recorded_number
from scaffold.check.model.scopes import Binding
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC304"
NAME = "unbatched-step"
SEVERITY = "error"
CHECKLIST = ("R4",)
APPLIES = Applies(objective="policy_gradient")
HELP = "step on (1, tokens, channels): put a batch dimension on velocity and latents, take it off the result"


def check(package: Package) -> Hits:
    """Look whether both tensors of a wrapper's step get a batch dimension."""
    side = side_of(package, "rollout")
    for function, entry in recorded_unbatched(side):
        yield Hit(function.file, entry, "recorded without a batch dimension, and stacked as if it had one")
    flat = recorded_number(package, "upstream", "sample_rank") == 2
    for function, call in sampling_calls(side):
        if function.name != "step" or function.cls is None or function.cls in side.adapters:
            continue
        values = [(name, value) for name in TENSORS if (value := sampling_argument(call, name)) is not None]
        batched = [_batched(side, function, value, 0) for _, value in values]
        # Known from the upstream pipeline; or the result is taken apart or averaged; or one of the two has it.
        needed = flat or True in batched or _unbatched_result(function, call) or _averaged(function, call)
        for (name, value), has in zip(values, batched, strict=True):
            if needed and has is False:
                yield Hit(
                    function.file,
                    value,
                    f"{name} has no batch dimension, so that each token gets a log-prob of its own",
                )
        if True in batched:
            yield from _kept(function, call)


def _kept(function: FunctionModel, call: ast.Call) -> Hits:
    """Look for latents that go back with other dimensions than the pipeline gave."""
    added, first = put_on(function, call), new_latents(function, call)
    if not added or added < 0 or first is None:
        return
    for item in function.returns:
        value = item.value
        values = [*value.args, *(k.value for k in value.keywords)] if isinstance(value, ast.Call) else [value]
        values = value.elts[:1] if isinstance(value, ast.Tuple) else values
        for written, part in [arm for value in values if value is not None for arm in arms(function, value)]:
            left = in_front(function, part, first)
            if left is None:
                continue
            if left + added > 0:
                yield Hit(function.file, written, "the pipeline gets latents with the batch dimension that was put on")
            elif left + added < 0:
                yield Hit(function.file, written, "the pipeline gets latents with a dimension less than it gave")


def _batched(side: Side, function: FunctionModel, value: ast.expr, depth: int) -> bool | None:
    """Whether a tensor gets a batch dimension: True, False where it goes through as it came, None if not plain."""
    if depth > 12:
        return None
    if isinstance(value, ast.IfExp) and _asks_dimensions(side, function, value.test):
        return None
    if isinstance(value, ast.IfExp):
        either = {_batched(side, function, part, depth + 1) for part in (value.body, value.orelse)}
        return False if False in either and True in either else either.pop() if len(either) == 1 else None
    if isinstance(value, ast.Subscript):
        parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
        first = parts[0] if parts else None
        if isinstance(first, ast.Constant) and first.value is None:
            return True
        if (isinstance(first, ast.Slice) and _is_whole(first)) or (
            isinstance(first, ast.Constant) and first.value is ...
        ):
            # ``x[:, None]``: the first dimension stays what it was.
            return _batched(side, function, value.value, depth + 1)
        return None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        name = value.func.attr
        if function.file.qualified(value.func) == "torch.atleast_3d" and value.args:
            # Of (tokens, channels) it makes (tokens, channels, 1): the new dimension is the last.
            return _batched(side, function, value.args[0], depth + 1)
        if name == "unsqueeze":
            at = (
                value.args[0]
                if value.args
                else next((item.value for item in value.keywords if item.arg == "dim"), None)
            )
            place = function.file.value(at) if at is not None else None
            if place == 0:
                return True
            behind = isinstance(place, int) and (place > 0 or place in (-1, -2))
            return _batched(side, function, value.func.value, depth + 1) if behind else None
        if function.file.qualified(value.func) == "torch.stack":
            return True
        if name in ("reshape", "view"):
            return True if value.args and function.file.value(value.args[0]) == 1 else None
        return _batched(side, function, value.func.value, depth + 1) if name in KEEPING else None
    if not isinstance(value, ast.Name):
        return None
    found: set[bool | None] = set()
    for binding in reaching(function, value):
        if binding.kind == "parameter":
            calls = list(arguments(side, function, value.id))
            found |= {_batched(side, caller, given, depth + 1) for caller, given in calls} if calls else {False}
        else:
            found.add(_batched(side, function, binding.value, depth + 1) if binding.value is not None else None)
    return found.pop() if len(found) == 1 else None


def _asks_dimensions(side: Side, function: FunctionModel, test: ast.expr) -> bool:
    """Whether a test may ask how many dimensions a tensor has: such arms put on what is lacking."""
    return bool(origin(side, function, test).attributes & {"dim", "ndim", "shape", "size", "ndimension"})


def _is_whole(part: ast.Slice) -> bool:
    return part.lower is None and part.upper is None and part.step is None


def _unbatched_result(function: FunctionModel, call: ast.Call) -> bool:
    """Whether the first dimension of the step's result is taken off again."""
    index = function.file.index
    statement = index.parent(call)
    names = set()
    if isinstance(statement, ast.Assign):
        names = {node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    for item in function.returns:
        for node in index.walk(item):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names:
                if isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Tuple):
                    continue
                if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
                    return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "squeeze":
                owner = node.func.value
                if (
                    isinstance(owner, ast.Name)
                    and owner.id in names
                    and node.args
                    and function.file.value(node.args[0]) == 0
                ):
                    return True
    return False


def _averaged(function: FunctionModel, call: ast.Call) -> bool:
    """Whether all numbers of the step's log-prob are averaged into one, as only those of single tokens would be."""
    for other in function.calls:
        whole = not other.args and not other.keywords and isinstance(other.func, ast.Attribute)
        value: ast.expr | None = None
        if whole and isinstance(other.func, ast.Attribute) and other.func.attr == "mean":
            value = other.func.value
        elif function.file.qualified(other.func) == "torch.mean" and len(other.args) == 1 and not other.keywords:
            value = other.args[0]
        if isinstance(value, ast.Name) and any(_log_prob_of(function, b, call) for b in reaching(function, value)):
            return True
    return False


def _log_prob_of(function: FunctionModel, binding: Binding, call: ast.Call) -> bool:
    """Whether a name is bound to the second part of a step's result."""
    place = unpacked_at(function.file, binding.node)
    if place is not None and place[0] is call:
        return place[1] == 1
    value = binding.value if binding.value is not None else bound_value(function.file, binding.node)
    if isinstance(value, ast.Subscript) and function.file.value(value.slice) != 1:
        return False
    if isinstance(value, ast.Attribute) and value.attr != "log_prob":
        return False
    if not isinstance(value, (ast.Subscript, ast.Attribute)):
        return False
    if value.value is call:
        return True
    return isinstance(value.value, ast.Name) and any(b.value is call for b in reaching(function, value.value))


_OUTPUT = "model_output=model_output.float()[None],"
_SAMPLE = "sample = sample.float()[None]"
_RETURN = "return _StepOutput(prev_sample[0], None if log_prob is None else log_prob[0])"
_SPEC = '[upstream]\nversion = "0.27.0rc1"\nsample_rank = 2\n'
FAILING = (
    Example("left on the result", {"rollout": [(_RETURN, "return _StepOutput(«prev_sample», log_prob)")]}),
    Example(
        "recorded without it",
        {
            "rollout": [
                ("self._latents.append(sample)", "self._latents.append(«sample[0]»)"),
                ("self._latents.append(prev_sample)", "self._latents.append(«prev_sample.squeeze(0)»)"),
            ]
        },
    ),
    Example(
        "left on the latents alone",
        {"rollout": [(_RETURN, _RETURN.replace("prev_sample[0]", "«prev_sample»"))]},
    ),
    Example(
        "left on in one arm",
        {"rollout": [(_RETURN, _RETURN.replace("prev_sample[0]", "prev_sample[0] if inside else «prev_sample»"))]},
    ),
    Example(
        "left on, behind a name",
        {
            "rollout": [
                (_RETURN, "result = prev_sample.float()\n        " + _RETURN.replace("prev_sample[0]", "«result»"))
            ]
        },
    ),
    Example(
        "another dimension is taken off",
        {"rollout": [(_RETURN, _RETURN.replace("prev_sample[0]", "«prev_sample[..., 0]»"))]},
    ),
    Example(
        "put on only in the window",
        {
            "rollout": [
                (_SAMPLE, "sample = sample.float()[None] if inside else sample.float()"),
                ("            sample=sample,\n", "            sample=«sample»,\n"),
            ]
        },
    ),
    Example("the velocity", {"rollout": [(_OUTPUT, "model_output=«model_output.float()»,")]}),
    Example(
        "the latents",
        {
            "rollout": [
                (_SAMPLE, "sample = sample.float()"),
                ("            sample=sample,\n", "            sample=«sample»,\n"),
            ]
        },
    ),
    Example(
        "a dimension behind the tokens",
        {
            "rollout": [
                (_OUTPUT, "model_output=«model_output.float()[:, None]»,"),
                (_SAMPLE, "sample = sample.float().unsqueeze(1)"),
                ("            sample=sample,\n", "            sample=«sample»,\n"),
            ]
        },
    ),
    Example(
        "both, and the result is taken apart",
        {
            "rollout": [
                (_OUTPUT, "model_output=«model_output.float()»,"),
                (_SAMPLE, "sample = sample.float()"),
                ("            sample=sample,\n", "            sample=«sample»,\n"),
            ]
        },
    ),
    Example(
        "a dimension put last",
        {
            "rollout": [
                (_OUTPUT, "model_output=«torch.atleast_3d(model_output.float())»,"),
                (_SAMPLE, "sample = torch.atleast_3d(sample.float())"),
                ("            sample=sample,\n", "            sample=«sample»,\n"),
            ]
        },
    ),
    Example(
        "both, and the log-prob is averaged by hand",
        {
            "rollout": [
                (_OUTPUT, "model_output=«model_output.float()»,"),
                (_SAMPLE, "sample = sample.float()"),
                ("            sample=sample,\n", "            sample=«sample»,\n"),
                (_RETURN, "return _StepOutput(prev_sample, None if log_prob is None else log_prob.mean())"),
            ]
        },
    ),
    Example(
        "both, where the pipeline is known",
        {
            "spec": _SPEC,
            "rollout": [
                (_OUTPUT, "model_output=«model_output.float()»,"),
                (_SAMPLE, "sample = sample.float()"),
                ("            sample=sample,\n", "            sample=«sample»,\n"),
                (_RETURN, "return _StepOutput(prev_sample, log_prob)"),
            ],
        },
    ),
)
PASSING = (
    Example(
        "recorded without it, and put on at the end",
        {
            "rollout": [
                ("self._latents.append(sample)", "self._latents.append(sample[0])"),
                ("self._latents.append(prev_sample)", "self._latents.append(prev_sample[0])"),
                ("torch.stack(self._latents, dim=1)", "torch.stack(self._latents)[None]"),
            ]
        },
    ),
    Example(
        "a dimension more or not",
        {"rollout": [(_OUTPUT, "model_output=torch.atleast_3d(model_output.float()[None]),")]},
    ),
    Example("both get a batch dimension"),
    Example(
        "put on where it is lacking",
        {
            "spec": _SPEC,
            "rollout": [
                (_OUTPUT, "model_output=(model_output[None] if model_output.dim() == 2 else model_output).float(),"),
                (
                    _SAMPLE,
                    "flat = sample.ndim == 2\n        sample = sample.float()[None] if flat else sample.float()",
                ),
            ],
        },
    ),
    Example(
        "and another one behind it",
        {"rollout": [(_OUTPUT, "model_output=model_output.float()[None][:, None],")]},
    ),
    Example(
        "taken off by squeeze",
        {
            "rollout": [
                (_RETURN, "latents = prev_sample.squeeze(0)\n        " + _RETURN.replace("prev_sample[0]", "latents"))
            ]
        },
    ),
    Example(
        "unsqueeze",
        {
            "rollout": [
                (_OUTPUT, "model_output=model_output.unsqueeze(0).float(),"),
                (_SAMPLE, "sample = sample.unsqueeze(dim=0).float()"),
            ]
        },
    ),
    Example("a pipeline with batches", base="diffusers"),
)
