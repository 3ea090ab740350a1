"""``noise_level`` or ``sde_type`` does not come from the configuration on one side.

Both decide how a step is sampled and how its log-prob is computed. The launch script sets them once for rollout and
training; a side that leaves one out, or writes its own value, computes log-probs of another process as soon as the
script says something else than that value.

    scheduler.sample_previous_step(…, noise_level=0.7)

Instead: ``model_config.algo.noise_level`` and ``.sde_type`` in training, the request's ``extra_args`` in the rollout.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name, has_unpacking
from scaffold.check.model.dataflow import Origin, origin, reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sde import Option, options, sampling_argument, sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC211"
NAME = "dropped-sde-option"
SEVERITY = "error"
CHECKLIST = ("pitfall 7",)
APPLIES = Applies(objective="policy_gradient")
HELP = "take it from model_config.algo in training and from the request's extra_args in the rollout"
_REQUEST = ("req", "request", "batch", "params", "sampling_params")
OPTIONS = ("noise_level", "sde_type")


def check(package: Package) -> Hits:
    """Look at what each side gives to its scheduler steps."""
    for which in ("training", "rollout"):
        side = side_of(package, which)
        calls = list(sampling_calls(side))
        for name in OPTIONS:
            given = options(side, name)
            for function, call in calls:
                value = sampling_argument(call, name)
                if value is not None and not any(option.value is value for option in given):
                    given.append(Option(function, value, value, call))
            missing = [
                (function, call)
                for function, call in calls
                if sampling_argument(call, name) is None and not _unpacked(side, function, call, given)
            ]
            for function, call in missing:
                yield Hit(
                    function.file,
                    call.func,
                    f"{name} is not given here; the {which} samples with the scheduler's default",
                )
            for option in given:
                read = _misread(option, name, which) or _other_field(package, option, name)
                if read is not None and option.call is not None:
                    yield Hit(option.function.file, option.value, f"{name} of the {which} is read from {read}")
            if given and not any(_configured(side, option, name) is not False for option in given):
                for option in given:
                    if not _is_zero(option.value) or (which == "training" and option.call is not None):
                        yield Hit(
                            option.function.file,
                            option.value,
                            f"{name} of the {which} does not come from the configuration",
                        )


def _configured(side: Side, option: Option, name: str) -> bool | None:
    """Whether a value comes from the configuration or the request; None where that is not plain."""
    found = origin(side, option.function, option.value)
    if name in found.strings or name in found.attributes:
        return True
    if found.complete and _other_keys(found, name) and all(parameter in _REQUEST for _, parameter in found.open):
        return False
    return None if found.open or not found.complete or _reads_more(found) else False


def _misread(option: Option, name: str, which: str) -> str | None:
    """Return what a value is read from, where that certainly is something else."""
    index = option.function.file.index
    for node in index.walk(option.value):
        if isinstance(node, ast.Attribute) and node.attr in OPTIONS and node.attr != name:
            return ast.unparse(node)
        if which != "training":
            continue
        if isinstance(node, ast.Attribute) and node.attr == name:
            if isinstance(node.value, ast.Attribute) and node.value.attr == "pipeline":
                return ast.unparse(node)
        if isinstance(node, ast.Call) and option.function.file.qualified(node.func) == "getattr" and len(node.args) > 2:
            if option.function.file.value(node.args[1]) == name and isinstance(node.args[0], ast.Name):
                return ast.unparse(node)
    return None


def _other_field(package: Package, option: Option, name: str) -> str | None:
    """Return a look-up with a default, of a field of the algorithm's settings that no script of the package sets."""
    file = option.function.file
    for node in file.index.walk(option.value):
        if not isinstance(node, ast.Call) or file.qualified(node.func) != "getattr" or len(node.args) != 3:
            continue
        owner, field = node.args[0], file.value(node.args[1])
        if not isinstance(owner, ast.Attribute) or owner.attr != "algo" or not isinstance(field, str):
            continue
        scripts = (*package.launch_scripts, *package.e2e_scripts)
        if field != name and not any(item.key.endswith(f".algo.{field}") for s in scripts for item in s.overrides):
            return ast.unparse(node)
    return None


def _other_keys(found: Origin, name: str) -> bool:
    """Whether keys are looked up, and none of them is the option's."""
    keys = {
        call.args[0].value
        for _, call in found.calls()
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "get"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    return bool(keys) and name not in found.strings | found.attributes


def _reads_more(found: Origin) -> bool:
    """Whether something is read whose contents are not plain."""
    return any(isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)) for _, _, node in found.nodes)


def _unpacked(side: Side, function: FunctionModel, call: ast.Call, given: list[Option]) -> bool:
    """Whether the option may be among the arguments that a call unpacks."""
    if not has_unpacking(call):
        return False
    # A keyword of another call is that function's; of dict() and update() it is a key.
    if any(option.call is None or attribute_name(option.call) in ("dict", "update", "partial") for option in given):
        return True
    values = [item.value for item in call.keywords if item.arg is None]
    return any(isinstance(item, ast.Starred) for item in call.args) or not all(
        _plain(side, function, v, 0) for v in values
    )


def _plain(side: Side, function: FunctionModel, value: ast.expr, depth: int) -> bool:
    """Whether all keys of a dictionary are plain from the text."""
    if depth > 6:
        return False
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return all(
            isinstance(key, ast.Constant) or (key is None and _plain(side, function, v, depth + 1)) for key, v in pairs
        )
    if isinstance(value, ast.IfExp):
        return _plain(side, function, value.body, depth + 1) and _plain(side, function, value.orelse, depth + 1)
    if isinstance(value, ast.Name):
        bound = [binding.value for binding in reaching(function, value)]
        return bool(bound) and all(v is not None and _plain(side, function, v, depth + 1) for v in bound)
    cls = side.receiver(function)
    if (
        isinstance(value, ast.Attribute)
        and isinstance(value.value, ast.Name)
        and value.value.id == function.bound
        and cls
    ):
        assigned = cls.instance_attributes(value.attr)
        return bool(assigned) and all(
            item.value is not None and item.method is not None and _plain(side, item.method, item.value, depth + 1)
            for item in assigned
        )
    return False


def _is_zero(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in (0, 0.0)


FAILING = (
    Example("the other option", training=("model_config.algo.noise_level", "«model_config.algo.sde_type»")),
    Example("zero in training", training=("model_config.algo.noise_level", "«0.0»")),
    Example("a literal in training", training=("model_config.algo.noise_level", "«0.7»")),
)
PASSING = (
    Example(
        "a fallback of its own name",
        training=("model_config.algo.sde_type", 'getattr(model_config.algo, "sde_type", "sde")'),
    ),
    Example(
        "from the configuration, by way of names",
        training=[
            ('all_timesteps"]\n', 'all_timesteps"]\n        algo = model_config.algo\n'),
            ("noise_level=model_config.algo", "noise_level=algo"),
        ],
    ),
)
