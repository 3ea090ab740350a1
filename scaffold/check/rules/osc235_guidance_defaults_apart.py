"""The two adapters guide with different scales where the recipe names none, or a script sets one for training alone.

The rollout samples with its own default, training recomputes the velocity with another one. Every ratio is off from the
first step on, and nothing raises: both values are legal. What a script gives ``rollout.pipeline``, ``model.pipeline``
follows; a value of its own there is the trainer's alone.

    return 1.0 if scale is None else float(scale)        # the rollout takes 4.0

Instead: keep one default in the package, and read it on both sides; in scripts, set ``rollout.pipeline``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.dataflow import origin
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel, PythonFile
from scaffold.check.model.shell import ROLLOUT
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC235"
NAME = "guidance-defaults-apart"
SEVERITY = "error"
CHECKLIST = ("T5", "pitfall 29")
APPLIES = Applies(objective="policy_gradient")
HELP = "keep the default once, and read it on both sides"
_TRAINED = "actor_rollout_ref.model.pipeline."


def check(package: Package) -> Hits:
    """Compare what each side takes where a scale of guidance is not given, and what scripts give each."""
    yield from _of_scripts(package)
    if not package.is_non_diffusers or not (package.mentions("cfg") or package.mentions("guidance")):
        return
    training, rollout = (_defaults(side_of(package, which)) for which in ("training", "rollout"))
    for key in training.keys() & rollout.keys():
        ours, theirs = {value for *_, value in training[key]}, {value for *_, value in rollout[key]}
        if len(ours) == len(theirs) == 1 and ours != theirs:
            file, node, value = training[key][0]
            text = f"training guides with {value:g} where no {key} is given, the rollout with {theirs.pop():g}"
            yield Hit(file, node, text)


def _of_scripts(package: Package) -> Hits:
    for script in package.scripts:
        for item in script.overrides:
            name = item.key.removeprefix(_TRAINED)
            if name == item.key or not isinstance(item.value, str):
                continue
            sampled = script.override(f"{ROLLOUT}pipeline.{name}")
            if sampled is None or (isinstance(sampled.value, str) and sampled.value != item.value):
                other = "its default" if sampled is None else sampled.value
                text = f"{name} is {item.value} in training and {other} in the rollout"
                yield Hit(script, item.span, text, f"give {ROLLOUT}pipeline.{name} alone: training follows it")


def _defaults(side: Side) -> dict[str, list[tuple[PythonFile, ast.expr, float]]]:
    """Return scale of guidance -> the numbers that a side falls back on; a scale with another default is left out."""
    found: dict[str, list[tuple[PythonFile, ast.expr, float]]] = {}
    unknown = set()
    for function in side.functions:
        for key, default in _fallbacks(side, function):
            value = _number(function.file, default)
            if value is not None:
                found.setdefault(key, []).append((function.file, default, value))
            elif not (isinstance(default, ast.Constant) and default.value is None) and not _reads(default, key):
                unknown.add(key)
    return {key: places for key, places in found.items() if key not in unknown}


def _fallbacks(side: Side, function: FunctionModel) -> Iterator[tuple[str, ast.expr]]:
    """Yield (scale, default) of ``D if x is None else x``, ``x or D``, ``getattr(c, "x", D)`` and ``c.get("x", D)``."""
    index = function.file.index
    for node in index.nodes(ast.IfExp, function.node):
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and ast.unparse(test.comparators[0]) == "None":
            default = node.body if isinstance(test.ops[0], (ast.Is, ast.Eq)) else node.orelse
            yield from ((key, default) for key in _scale(side, function, test.left))
    for choice in index.nodes(ast.BoolOp, function.node):
        if isinstance(choice.op, ast.Or) and len(choice.values) == 2:
            yield from ((key, choice.values[1]) for key in _scale(side, function, choice.values[0]))
    for call in function.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        at = {"getattr": 1, "get": 0}.get(name)
        if at is not None and len(call.args) == at + 2:
            key = function.file.value(call.args[at])
            if isinstance(key, str) and _is_scale(key):
                yield key, call.args[at + 1]


def _reads(default: ast.expr, key: str) -> bool:
    """Tell whether what is taken where a scale is not given is the same scale from elsewhere, or nothing."""
    return any(isinstance(node, ast.Attribute) and node.attr == key for node in ast.walk(default)) and not any(
        isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) for node in ast.walk(default)
    )


def _scale(side: Side, function: FunctionModel, value: ast.expr) -> list[str]:
    """Return the scale that a value is read from, where that is one."""
    made = origin(side, function, value)
    keys = sorted(word for word in made.strings | made.attributes if _is_scale(word))
    return keys if len(keys) == 1 else []


def _is_scale(word: str) -> bool:
    return word.isidentifier() and word.endswith("scale") and ("cfg" in word or "guidance" in word)


def _number(file: PythonFile, value: ast.expr) -> float | None:
    """Return a number, also one that is a field of an object that a module holds."""
    if isinstance(value, ast.Call) and file.qualified(value.func) == "float" and len(value.args) == 1:
        return _number(file, value.args[0])
    plain = file.value(value)
    if isinstance(plain, (int, float)) and not isinstance(plain, bool):
        return float(plain)
    if not isinstance(value, ast.Attribute):
        return None
    found = file.project.definition(file.qualified(value.value) or "")
    made = found[1].value if found is not None else None
    cls = found[0].project.class_of(found[0], made.func) if found and isinstance(made, ast.Call) else None
    if found is None or cls is None or not isinstance(made, ast.Call) or made.args:
        return None
    given = next((item.value for item in made.keywords if item.arg == value.attr), None)
    if given is not None:
        return _number(found[0], given)
    field = cls.fields.get(value.attr)
    return _number(field.file, field.value) if field is not None and field.value is not None else None


_TRAINING = (
    "        velocity = module(**model_inputs)[0].float()\n",
    '        scale = getattr(model_config.pipeline, "guidance_scale", None)\n'
    "        scale = %s if scale is None else float(scale)\n"
    "        velocity = scale * module(**model_inputs)[0].float()\n",
)
_ROLLOUT = (
    "        self._ensure_prompt_text(req)\n",
    "        self._ensure_prompt_text(req)\n"
    "        asked = req.sampling_params.guidance_scale\n"
    "        req.sampling_params.guidance_scale = 4.0 if asked is None else asked\n",
)
_ELSEWHERE = _ROLLOUT[1].replace(
    "req.sampling_params.guidance_scale\n        req",
    "req.sampling_params.extra_args.get(\n"
    '            "guidance_scale", req.sampling_params.guidance_scale if req.sampling_params else None\n'
    "        )\n        req",
)
_STEPS = "    actor_rollout_ref.rollout.pipeline.num_inference_steps=15 \\\n"
FAILING = (
    Example(
        "a rollout that looks in two places first",
        training=(_TRAINING[0], _TRAINING[1] % "«1.0»"),
        rollout=(_ROLLOUT[0], _ELSEWHERE),
    ),
    Example(
        "in a script, for training alone",
        launch=(_STEPS, f"{_STEPS}    «actor_rollout_ref.model.pipeline.guidance_scale=3.0» \\\n"),
    ),
    Example(
        "a default of training's own",
        training=(_TRAINING[0], _TRAINING[1] % "«1.0»"),
        rollout=_ROLLOUT,
    ),
)
PASSING = (
    Example(
        "in a script, the same for both",
        launch=(_STEPS, f"{_STEPS}    actor_rollout_ref.model.pipeline.num_inference_steps=15 \\\n"),
    ),
    Example("the same default", training=(_TRAINING[0], _TRAINING[1] % "4.0"), rollout=_ROLLOUT),
    Example(
        "a default that the text does not give", training=(_TRAINING[0], _TRAINING[1] % "cls.scale()"), rollout=_ROLLOUT
    ),
)
