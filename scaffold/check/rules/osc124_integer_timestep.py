"""Timesteps or sigmas are made whole numbers.

A schedule of flow matching has steps such as 833.33 or 0.8571. Rounded, the model is evaluated at another noise level
than the rollout was, and the scheduler's look-up of the step fails or finds its neighbour.

    timestep = timesteps[:, step].long()

Instead: keep float32.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.python import PythonFile
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC124"
NAME = "integer-timestep"
SEVERITY = "error"
CHECKLIST = ("pitfall 33",)
APPLIES = Applies(resolved=False)
HELP = "keep timesteps and sigmas in float32"
_METHODS = {"long", "int", "short", "round", "floor", "ceil", "trunc", "fix", "round_", "floor_"}
_TYPES = {"torch.long", "torch.int", "torch.int64", "torch.int32", "torch.int16", "int"}
_FUNCTIONS = {"int", "round", "math.floor", "math.ceil", "torch.round", "torch.floor", "torch.ceil"} | {
    f"{library}.{name}" for library in ("torch", "numpy", "math") for name in ("trunc", "fix", "floor", "ceil", "rint")
}


def check(package: Package) -> Hits:
    """Look at every conversion of something called a timestep or sigma."""
    for file in package.files:
        for call in file.index.nodes(ast.Call):
            if _rounds(file, call):
                yield Hit(file, call, "a timestep is made a whole number")
        for division in file.index.nodes(ast.BinOp):
            if isinstance(division.op, ast.FloorDiv) and _is_timestep(division.left):
                yield Hit(file, division, "a timestep is made a whole number")


def _rounds(file: PythonFile, call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute) and _is_timestep(function.value):
        casts = function.attr in ("to", "type", "astype")
        given = [*call.args, *(item.value for item in call.keywords)]
        if casts or function.attr == "type_as":
            return bool(_TYPES & set(_types(file, call))) or any(_is_whole(value) for value in given)
        return function.attr in _METHODS
    if not call.args or not _is_timestep(call.args[0]):
        return False
    name = file.qualified(function)
    typed = name in ("torch.tensor", "torch.as_tensor")
    return name in _FUNCTIONS or (typed and bool(_TYPES & set(_types(file, call)[1:])))


def _is_whole(like: ast.expr) -> bool:
    """Whether a cast takes its type from token ids, a mask or indices: ``x.to(ids)``, ``x.to(ids.dtype)``."""
    if isinstance(like, ast.Attribute) and like.attr == "dtype":
        like = like.value
    name = like.id if isinstance(like, ast.Name) else like.attr if isinstance(like, ast.Attribute) else ""
    return name.lower().rpartition("_")[2] in ("ids", "mask", "indices", "index")


def _types(file: PythonFile, call: ast.Call) -> list[str | None]:
    given = [*call.args, *(item.value for item in call.keywords if item.arg == "dtype")]
    return [file.qualified(value) for value in given]


def _is_timestep(node: ast.expr) -> bool:
    """Whether an expression is the value of timesteps, perhaps scaled: not their number, shape or index."""
    if isinstance(node, ast.Subscript):
        return _is_timestep(node.value)
    if isinstance(node, ast.BinOp):
        return _is_timestep(node.left) or (isinstance(node.op, ast.Mult) and _is_timestep(node.right))
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("item", "float", "flatten", "view", "reshape", "to", "mul")
    ):
        return _is_timestep(node.func.value)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    words = name.lower().strip("_").split("_")
    counts = {
        "num",
        "n",
        "count",
        "size",
        "index",
        "idx",
        "dim",
        "embedder",
        "embed",
        "number",
        "len",
        "id",
        "ids",
        "steps",
    }
    return bool({"timestep", "timesteps", "sigma", "sigmas"} & set(words)) and not counts & set(words)


FAILING = (
    Example("long()", training=(" timesteps[:, step],", " «timesteps[:, step].long()»,")),
    Example("the type of token ids", training=(" timesteps[:, step],", " «timesteps[:, step].to(ids.dtype)»,")),
)
PASSING = (
    Example(
        "the number of steps",
        training=(" timesteps[:, step],\n", " timesteps[:, step] + 0 * int(timesteps.shape[1]),\n"),
    ),
)
