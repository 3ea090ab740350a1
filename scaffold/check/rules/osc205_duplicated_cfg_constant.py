"""A guidance constant is written down in more than one module of the package, or a script sets it for one side.

Rollout and training have to apply the same guidance: a scale of 3 for 4 moves the log-prob by 7e-3, without
guidance it is 8e-2, and the clip range is 1e-5. Two literals drift as soon as one of them is changed.

    # rollout adapter                                # training adapter
    extra_args.setdefault("cfg_text_scale", 4.0)      getattr(pipeline, "cfg_text_scale", 3.0)

What a script gives ``rollout.pipeline``, ``model.pipeline`` follows. A value of its own there is the trainer's alone.

Instead: one table in a module that both adapters import; in scripts, ``actor_rollout_ref.rollout.pipeline``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.example import Example
from scaffold.check.model.hydra import ROLLOUT
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sides import side_of
from scaffold.check.model.values import known
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC205"
NAME = "duplicated-cfg-constant"
SEVERITY = "error"
CHECKLIST = ("pitfall 29",)
APPLIES = Applies(objective="policy_gradient")
HELP = "write it once, in a module that both adapters import"
_TRAINING = "actor_rollout_ref.model.pipeline."


_GUIDANCE = r"(?i)(?:^|_)cfg(?:_|$)"
_READERS = {"get", "setdefault", "pop"}


def check(package: Package) -> Hits:
    """Compare the modules with each other, and the two sides of scripts."""
    yield from _of_scripts(package)
    sides = [{f.file for f in side_of(package, which).functions} for which in ("training", "rollout")]
    taking_part = sides[0] | sides[1]
    adapters = {cls.file for cls in (*package.training_adapters, *package.rollout_adapters)}
    found: dict[str, list[_GuidanceDefault]] = {}
    for file in package.files:
        if file in taking_part and b"cfg" in file.data.lower():
            for default in _guidance_defaults(file):
                found.setdefault(default.name, []).append(default)
    for name, defaults in found.items():
        files = list(dict.fromkeys(default.file for default in defaults))
        if len(files) < 2:
            continue
        # The one that is to stay: a module beside the adapters, else the training adapter's.
        home = min(files, key=lambda file: (file in adapters, file not in sides[0], file.path))
        for default in defaults:
            if default.file is not home:
                yield Hit(default.file, default.node, _message(default, name, home, defaults))


def _of_scripts(package: Package) -> Hits:
    for script in (*package.launch_scripts, *package.e2e_scripts):
        for item in script.overrides:
            name = item.key.removeprefix(_TRAINING)
            if name == item.key or not isinstance(item.value, str):
                continue
            sampled = script.override(f"{ROLLOUT}pipeline.{name}")
            if sampled is None or (isinstance(sampled.value, str) and sampled.value != item.value):
                other = "its default" if sampled is None else sampled.value
                text = f"{name} is {item.value} in training and {other} in the rollout"
                yield Hit(script, item.span, text, f"give {ROLLOUT}pipeline.{name} alone: training follows it")


def _message(default: _GuidanceDefault, name: str, home: PythonFile, defaults: list[_GuidanceDefault]) -> str:
    other = next(item for item in defaults if item.file is home)
    drifted = f", where it is {other.value!r}" if other.value != default.value else ""
    return f"{name} is written down here as {default.value!r} and in {home.name}{drifted}"


_STEPS = "    actor_rollout_ref.rollout.pipeline.num_inference_steps=15 \\\n"
FAILING = (
    Example(
        "in a script, for training alone",
        launch=(_STEPS, f"{_STEPS}    «actor_rollout_ref.model.pipeline.guidance_scale=3.0» \\\n"),
    ),
    Example(
        "a second table", training=("ToyForTraining\n", 'ToyForTraining\n\n\n_GUIDANCE = {"cfg_text_scale": «4.0»}\n')
    ),
    Example(
        "a fall-back that drifted",
        training=('if guidance["cfg_text_scale"] ', 'if getattr(model_config.pipeline, "cfg_text_scale", «3.0») '),
    ),
    Example(
        "in the rollout adapter",
        rollout=("CFG_DEFAULTS}))\n", 'CFG_DEFAULTS}))\n        extra_args.setdefault("cfg_text_scale", «4.0»)\n'),
    ),
)
PASSING = (
    Example("compared with a number", training=('cfg_text_scale"] > 1.0', 'cfg_text_scale"] > 1.5')),
    Example(
        "in a script, the same for both",
        launch=(_STEPS, f"{_STEPS}    actor_rollout_ref.model.pipeline.num_inference_steps=15 \\\n"),
    ),
)


class _GuidanceDefault(NamedTuple):
    """A literal that stands for a guidance option.

    Attributes:
        name: the option, in lower case.
        file: where.
        node: the node that holds the value.
        value: the value.
    """

    name: str
    file: PythonFile
    node: ast.expr
    value: object


def _guidance_defaults(file: PythonFile) -> Iterator[_GuidanceDefault]:
    """Yield the literals that a file gives to guidance options: constants, keys of dictionaries, defaults of
    parameters and fields, arguments, and fall-backs of ``get``, ``setdefault`` and ``getattr``."""
    for name, node in _pairs(file):
        if isinstance(node, (ast.Constant, ast.Tuple, ast.List, ast.UnaryOp)) and re.search(_GUIDANCE, name):
            value = file.value(node)
            if known(value) and value is not None and not isinstance(value, bool):
                yield _GuidanceDefault(name.lower(), file, node, value)


def _pairs(file: PythonFile) -> Iterator[tuple[str, ast.expr]]:
    index = file.index
    for table in index.nodes(ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    statements: list[ast.Assign | ast.AnnAssign] = [*index.nodes(ast.Assign), *index.nodes(ast.AnnAssign)]
    for statement in statements:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if statement.value is None:
                continue
            if isinstance(target, ast.Name):
                yield target.id, statement.value
            elif isinstance(target, ast.Attribute):
                yield target.attr, statement.value
            elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                yield str(target.slice.value), statement.value
    for call in index.nodes(ast.Call):
        for item in call.keywords:
            if item.arg is not None:
                yield item.arg, item.value
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        places = call.args[1:3] if name == "getattr" else call.args[:2] if name in _READERS else []
        if len(places) == 2 and isinstance(places[0], ast.Constant):
            yield str(places[0].value), places[1]
    for arguments in index.nodes(ast.arguments):
        named = [*arguments.posonlyargs, *arguments.args]
        given = [*zip(reversed(named), reversed(arguments.defaults), strict=False)]
        for argument, default in (*given, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)):
            if default is not None:
                yield argument.arg, default
