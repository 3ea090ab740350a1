"""The features of the noise level are not those that the checkpoint was trained with.

The time embedder is a small network over cosines and sines of the noise level. With the two halves exchanged, with
another longest period, or with the level scaled by a thousand, it is asked about a time it never saw: the velocity is
wrong at every step, by an amount that looks like a badly trained model.

    torch.cat((angles.sin(), angles.cos()), dim=-1)          # the model's features begin with the cosines

Instead: compute the features as the upstream pipeline does; ``scaffold.toml`` records order, period and scale.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded_float, recorded_list
from scaffold.check.model.sides import side_of
from scaffold.check.model.streams import root_name
from scaffold.check.model.values import UNKNOWN
from scaffold.check.model.worked_features import other_frequency, worked_features
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC139"
NAME = "other-timestep-features"
SEVERITY = "error"
CHECKLIST = ("M7",)
APPLIES = Applies(non_diffusers=True)
HELP = "compute the features as the upstream pipeline does"
_SECTION = "architecture"
_TIMES = ("timestep", "timesteps", "sigma", "sigmas", "t", "time", "noise_level")


def check(package: Package) -> Hits:
    """Look at functions that make cosines and sines of a noise level."""
    order = recorded_list(package, _SECTION, "timestep_order")
    period, scale = (recorded_float(package, _SECTION, key) for key in ("timestep_max_period", "timestep_scale"))
    if order is None and period is None and scale is None:
        return
    functions = [*package.forward_functions, *side_of(package, "training").functions]
    for function in dict.fromkeys(functions):
        ours = function.file in package.files and _about_time(function)
        halves = [(*found, _made_of(function, found[0])) for found in _halves(function)] if ours else []
        halves = [found for found in halves if _of_time(function, found[2])]
        if not halves:
            continue
        told: list[Hit] = []
        for call, kinds, _ in halves:
            if order is not None and sorted(kinds) == sorted(order) and kinds != order:
                text = f"{kinds[0]} comes first here, {order[0]} in the model's features"
                told.append(Hit(function.file, call, text))
        if scale is not None:
            told += _scaled_before(package, function, scale)
        parts = [part for *_, made in halves for part in made]
        told += [*_periods(function, period, parts), *_scales(function, scale, parts)]
        yield from told
        features = worked_features(function) if not told and order and period and scale else None
        wrong = other_frequency(features, order or [], period or 1.0, scale or 1.0) if features is not None else None
        if wrong is not None:
            yield Hit(function.file, halves[0][0], wrong)


def _about_time(function: FunctionModel) -> bool:
    return any(name in _TIMES for name in function.parameters) and (
        "time" in function.name or "sinus" in function.name or "freq" in function.name or function.name == "forward"
    )


def _made_of(function: FunctionModel, joined: ast.expr) -> list[ast.expr]:
    """Return an expression, and what the local names in it were assigned."""
    index = function.file.index
    parts, names = [joined], {name.id for name in index.nodes(ast.Name, joined)}
    pending = set(names)
    while pending:
        made = [value for name, value in function.assignments if name in pending]
        parts += made
        pending = {name.id for value in made for name in index.nodes(ast.Name, value)} - names
        names |= pending
    return parts


def _of_time(function: FunctionModel, parts: list[ast.expr]) -> bool:
    """Whether expressions are made of a noise level: positions have cosines and sines too."""
    return any(name.id in _TIMES for part in parts for name in function.file.index.nodes(ast.Name, part))


def _halves(function: FunctionModel) -> Iterator[tuple[ast.Call, list[str]]]:
    """Yield the places where cosines and sines are joined, with their order."""
    for call in function.calls:
        joins = function.file.qualified(call.func) in ("torch.cat", "torch.concat", "torch.stack")
        parts = call.args[0] if joins and call.args else None
        waves = _waves(parts) if parts is not None else []
        if len(waves) == 2:
            kinds = [_kind(part) for part in waves]
            found = [kind for kind in kinds if kind is not None]
            if sorted(found) == ["cos", "sin"]:
                yield call, found


def _waves(parts: ast.expr) -> list[ast.expr]:
    """Return what is joined; of ``[wave(x) for wave in (torch.cos, torch.sin)]`` the functions."""
    if isinstance(parts, (ast.Tuple, ast.List)):
        return parts.elts
    if isinstance(parts, (ast.ListComp, ast.GeneratorExp)) and len(parts.generators) == 1:
        loop = parts.generators[0]
        made = parts.elt.func if isinstance(parts.elt, ast.Call) else None
        applied = isinstance(made, ast.Name) and isinstance(loop.target, ast.Name) and made.id == loop.target.id
        if applied and isinstance(loop.iter, (ast.Tuple, ast.List)) and not loop.ifs:
            return loop.iter.elts
    return []


def _scaled_before(package: Package, function: FunctionModel, scale: float) -> Hits:
    """Look at what the adapter gives to the function that makes the features."""
    for caller in side_of(package, "training").functions:
        for call in caller.calls if caller.file in package.files and function.cls is None else ():
            given = call.args[0] if call.args and resolve(caller.file, call) == function else None
            if not isinstance(given, ast.BinOp) or not isinstance(given.op, ast.Mult):
                continue
            for number, other in ((given.left, given.right), (given.right, given.left)):
                value = _value(caller, number)
                root = root_name(other)
                if value is not None and value != scale and root in _TIMES:
                    text = f"the noise level is multiplied with {value:g}, in the model with {scale:g}"
                    yield Hit(caller.file, given, text)


def _kind(part: ast.expr) -> str | None:
    part = part.func if isinstance(part, ast.Call) else part
    name = part.attr if isinstance(part, ast.Attribute) else None
    return name if name in ("cos", "sin") else None


def _periods(function: FunctionModel, period: float | None, parts: list[ast.expr]) -> Hits:
    """Look at the number whose logarithm, or powers, the frequencies are made of."""
    if period is None:
        return
    index = function.file.index
    calls = {call: None for part in parts for call in index.nodes(ast.Call, part)}
    powers = {node: None for part in parts for node in index.nodes(ast.BinOp, part) if isinstance(node.op, ast.Pow)}
    given = [c.args[0] for c in calls if function.file.qualified(c.func) in ("math.log", "numpy.log") and c.args]
    given += [node.left for node in powers]
    for node in given:
        value = _value(function, node)
        if value is not None and value > 1.0 and value != period:
            yield Hit(
                function.file, node, f"the longest period is {value:g} here and {period:g} in the model's features"
            )


def _value(function: FunctionModel, node: ast.expr) -> float | None:
    value = function.file.value(node)
    if value is UNKNOWN and isinstance(node, ast.Name):
        default = function.default(node.id)
        value = function.file.value(default) if default is not None else UNKNOWN
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _scales(function: FunctionModel, scale: float | None, parts: list[ast.expr]) -> Hits:
    """Look for a number that the noise level is multiplied with."""
    if scale is None:
        return
    products = {node: None for part in parts for node in function.file.index.nodes(ast.BinOp, part)}
    for node in products:
        for number, other in ((node.left, node.right), (node.right, node.left)):
            value = _value(function, number) if isinstance(node.op, ast.Mult) else None
            if value in (None, scale) or not _is_time(function, other):
                continue
            yield Hit(function.file, node, f"the noise level is multiplied with {value:g}, in the model with {scale:g}")


def _is_time(function: FunctionModel, expr: ast.expr) -> bool:
    """Whether an expression is the noise level itself, converted or with more dimensions."""
    while isinstance(expr, (ast.Call, ast.Subscript, ast.Attribute)):
        if isinstance(expr, ast.Call) and not isinstance(expr.func, ast.Attribute):
            return False
        expr = expr.func if isinstance(expr, ast.Call) else expr.value
    return isinstance(expr, ast.Name) and expr.id in _TIMES and expr.id in function.parameters


_SPEC = """[architecture]
timestep_order = ["cos", "sin"]
timestep_max_period = 10000.0
timestep_scale = 1.0
"""
_MAKE = """\
def timestep_features(timestep: Tensor) -> Tensor:
    rates = {rates}
    angles = {angles}
    return {joined}


class TimestepEmbedder("""
_RATES = "torch.exp(-math.log({}) * torch.arange({}, device=timestep.device) / {})"
_BASE = {"rates": _RATES.format("10000.0", 8, 8), "angles": "timestep.float()[:, None] * rates"}
_ORDER = "torch.cat((angles.cos(), angles.sin()), dim=-1)"


def _example(title: str, **parts: str) -> Example:
    made = _MAKE.format(**{**_BASE, "joined": _ORDER, **parts})
    changes = [
        ("class TimestepEmbedder(", made),
        ("nn.Linear(1, hidden_size)", "nn.Linear(16, hidden_size)"),
        ("self.mlp(timestep[:, None])", "self.mlp(timestep_features(timestep))"),
        ("import json\n", "import json\nimport math\n"),
    ]
    return Example(title, {"spec": _SPEC, "model": changes})


FAILING = (
    _example("the sines first", joined="«torch.cat((angles.sin(), angles.cos()), dim=-1)»"),
    _example("another period", rates=_RATES.format("«1000.0»", 8, 8)),
    _example("one frequency too far apart", rates=_RATES.format("10000.0", 8, "(8 - 1)"), joined=f"«{_ORDER}»"),
    _example("from the second frequency on", rates=_RATES.format("10000.0", "1, 9", 8), joined=f"«{_ORDER}»"),
    _example(
        "by powers, spaced wider",
        rates="10000.0 ** (-torch.linspace(0, 1, 8, device=timestep.device))",
        joined=f"«{_ORDER}»",
    ),
    _example("over all channels", rates=_RATES.format("10000.0", 8, 16), joined=f"«{_ORDER}»"),
    _example("a thousand times the noise level", angles="«1000.0 * timestep.float()[:, None]» * rates"),
)
PASSING = (
    Example(
        "positions in the code that is given the noise level",
        {
            "spec": _SPEC,
            "model": [
                (
                    "        latents = latents + self.latent_pos_embed(latent_pos_ids)\n",
                    "        latents = latents + self.latent_pos_embed(latent_pos_ids)\n"
                    "        rates = 500000.0 ** (-torch.arange(8, device=device) / 8)\n"
                    "        angles = latent_pos_ids[:, :, None] * rates\n"
                    "        latents = latents + torch.cat((angles.sin(), angles.cos()), dim=-1)\n",
                )
            ],
        },
    ),
    _example("as recorded"),
    _example("by powers", rates="10000.0 ** (-torch.arange(0, 16, 2, device=timestep.device) / 16)"),
    _example("multiplied with one", angles="(timestep * 1.0)[:, None] * rates"),
    _example("functions of torch", joined="torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)"),
    Example("nothing is recorded"),
)
