"""The first sample of the micro-batch decides for all of them.

Samples of a micro-batch may stand at different noise levels: windows differ between ranks and steps are shuffled
before they are batched. A test of ``timesteps[0]`` gives guidance to samples that the rollout sampled without, or
takes it from samples that had it, by up to 8e-2 in the log-prob.

    if low < float(timesteps[0, step]) <= high:
        velocity = guided

Instead: decide for each sample, as ``torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), guided, velocity)``,
and score each at its own, ``timestep=timesteps[:, step]``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.dataflow import Origin, origin
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC217"
NAME = "first-sample-decides"
SEVERITY = "warning"
CHECKLIST = ("T5",)
APPLIES = Applies(objective="policy_gradient")
HELP = "decide for each sample: torch.where(condition.view(-1, 1, 1), guided, velocity)"
_REDUCING = {"mean", "max", "min", "median", "amax", "amin"}


def check(package: Package) -> Hits:
    """Look for timesteps and noise levels of one sample on the training side."""
    side = side_of(package, "training")
    for function in side.functions:
        index = function.file.index
        if _all_equal(function):
            continue
        for node in index.nodes(ast.Subscript, function.node):
            if isinstance(node.ctx, ast.Load) and _of_first(node) and _decides(function, node):
                if _of_batch(origin(side, function, node.value)):
                    yield Hit(function.file, node, f"{ast.unparse(node)} decides for every sample of the micro-batch")
        for call in function.calls:
            target = call.func
            if isinstance(target, ast.Attribute) and target.attr == "sample_previous_step":
                time = next((item.value for item in call.keywords if item.arg == "timestep"), None)
                for part in ast.walk(time) if time is not None else ():
                    if isinstance(part, ast.Subscript) and _of_first(part):
                        if _of_batch(origin(side, function, part.value)):
                            told = f"every sample is scored at the timestep of one, {ast.unparse(part)}"
                            yield Hit(function.file, part, told, "score each at its own: timestep=timesteps[:, step]")
            if (
                isinstance(target, ast.Attribute)
                and target.attr in _REDUCING
                and not call.args
                and _decides(function, call)
            ):
                if function.file.qualified(target) is None and _of_batch(origin(side, function, target.value)):
                    yield Hit(function.file, call, f"{ast.unparse(call)} decides for every sample of the micro-batch")


def _of_first(node: ast.Subscript) -> bool:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    first = parts[0]
    if isinstance(first, ast.UnaryOp) and isinstance(first.operand, ast.Constant):
        return isinstance(first.operand.value, int)
    return isinstance(first, ast.Constant) and isinstance(first.value, int) and not isinstance(first.value, bool)


def _of_batch(found: Origin) -> bool:
    """Whether a value derives from the batch's timesteps, and not from the schedule's."""
    if "all_timesteps" in found.strings:
        return not found.strings & {"all_latents"} or "timestep" in " ".join(found.names).lower()
    return any(name == "timesteps" and function.name == "prepare_model_inputs" for function, name in found.open)


def _decides(function: FunctionModel, node: ast.AST) -> bool:
    """Whether a test depends on a value, directly or through a name."""
    index = function.file.index
    names: set[str] = set()
    for outer in index.ancestors(node):
        if isinstance(outer, ast.Compare):
            return True
        if isinstance(outer, (ast.If, ast.IfExp, ast.While)) and index.contains(outer.test, node):
            return True
        if isinstance(outer, (ast.Assign, ast.AnnAssign)):
            targets = outer.targets if isinstance(outer, ast.Assign) else [outer.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(outer, ast.stmt):
            break
    compared = [n for compare in index.nodes(ast.Compare, function.node) for n in index.walk(compare)]
    return any(isinstance(n, ast.Name) and n.id in names for n in compared)


def _all_equal(function: FunctionModel) -> bool:
    """Whether the function refuses batches whose samples differ."""
    index = function.file.index
    stops = [
        outer
        for node in index.nodes(ast.Raise, function.node)
        for outer in index.ancestors(node)
        if isinstance(outer, ast.If)
    ]
    tests = [stop.test for stop in stops] + [node.test for node in index.nodes(ast.Assert, function.node)]
    return any(
        word in text
        for text in map(ast.unparse, tests)
        for word in (".all(", "torch.all(", "unique", "allclose", "equal(")
    )


FAILING = (
    Example(
        "every sample is scored at the first one's",
        training=("timestep=timesteps[:, step]", "timestep=«timesteps[0, step]»"),
    ),
    Example(
        "the first timestep",
        training=(
            (
                "timesteps[:, step].double()\n            velocity = torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), guided, velocity)"
            ),
            ("float(«timesteps[0, step]»)\n            velocity = guided if low < sigma <= high else velocity"),
        ),
    ),
    Example(
        "a mean",
        training=(
            "velocity = torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), guided, velocity)",
            "if low < «sigma.mean()» <= high:\n                velocity = guided",
        ),
    ),
)
PASSING = (
    Example(
        "refused where they differ",
        training=(
            (
                ":, step].double()\n            velocity = torch.where(((sigma > low) & (sigma <= high)).view(-1, 1, 1), guided, velocity)"
            ),
            "0, step]\n            if not (timesteps[:, step] == sigma).all():\n"
            '                raise ValueError("one noise level is needed")\n'
            "            velocity = guided if low < sigma <= high else velocity",
        ),
    ),
)
