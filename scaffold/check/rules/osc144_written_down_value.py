"""A number is written down where the checkpoint's configuration says it, and nothing reads the field.

The number is the one of another model, from memory or from a default: the base of the rotary frequencies, the epsilon of
the norms, a width. Shapes that differ stop the load, but numbers such as these do not: the model runs, a little off at
every layer.

    rotary_tables(positions, config.head_dim, 10000.0)       # and config.rope_theta is used nowhere

Instead: hand on the field of the configuration.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import bind, has_unpacking, resolve
from scaffold.check.model.classes import Attribute, ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.submodules import submodules
from scaffold.check.model.twins import twin_suffixes
from scaffold.check.model.values import UNKNOWN
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC144"
NAME = "written-down-value"
SEVERITY = "error"
CHECKLIST = ("M1", "M8", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "hand on the field of the configuration"
# Words that say what kind of model a number is for, not which number it is.
_VAGUE = {
    "num",
    "size",
    "dim",
    "max",
    "min",
    "the",
    "hidden",
    "layers",
    "latent",
    "id",
    "n",
    "type",
    "rms",
    "rope",
    "of",
    "norm",
    "layer",
}
_OTHER = {"theta": "base", "base": "theta", "eps": "epsilon", "epsilon": "eps"}
_SMALLEST = 16  # widths; smaller numbers stand for too many things


def check(package: Package) -> Hits:
    """Look for numbers that stand in the place of a field that nothing else reads."""
    config = package.config_class
    module = package.training_module
    if config is None or module is None or config.file not in package.files or not config.is_dataclass:
        return
    yield from _twins(package, config)
    unused = _unused(package, config)
    yield from _unread(package, config)
    functions = [f for f in package.functions if f.file is module.file and f.cls != config] if unused else []
    for name, default in unused.items():
        yield from _instead(functions, config, name, default)


def _unread(package: Package, config: ClassModel) -> Hits:
    """Look for parameters that are there for a field, get it, and are not read."""
    built = [part.cls.method("__init__") for part in package.module_tree if part.cls is not None]
    numbers = [name for name, field in config.fields.items() if field.value is not None and _is_float(field)]
    for function in dict.fromkeys([*package.forward_functions, *filter(None, built)]):
        if function.file not in package.files or function.is_abstract:
            continue
        for parameter in function.parameters:
            name = next((name for name in numbers if _speaks_of(parameter, name)), None)
            node = function.parameter_node(parameter) if name is not None else None
            if node is not None and not _reads(function, parameter):
                text = f"{function.name}() takes {parameter} for {config.name}.{name} and does not use it"
                yield Hit(function.file, node, text, f"use {parameter}")


def _reads(function: FunctionModel, name: str) -> bool:
    names = function.file.index.nodes(ast.Name, function.node)
    return any(node.id == name and isinstance(node.ctx, ast.Load) for node in names)


def _is_float(field: Attribute) -> bool:
    return field.value is not None and isinstance(field.file.value(field.value), float)


def _unused(package: Package, config: ClassModel) -> dict[str, int | float]:
    """Return the fields with a number for a default that the package's code reads nowhere, with the default."""
    found: dict[str, int | float] = {}
    for name, field in config.fields.items():
        value = field.file.value(field.value) if field.value is not None else UNKNOWN
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    for file in package.files:
        for name in [name for name in found if f".{name}" in file.text]:
            del found[name]
    for file in package.files if found else ():
        for call in file.index.nodes(ast.Call):
            # Fields that are read by name, one by one or all of them.
            if isinstance(call.func, ast.Name) and call.func.id in ("getattr", "vars", "asdict", "astuple"):
                if _is_config(call) and not file.index.contains(config.node, call):
                    value = file.value(call.args[1]) if call.func.id == "getattr" and len(call.args) > 1 else UNKNOWN
                    if value is UNKNOWN:
                        return {}
                    found.pop(str(value), None)
    return found


def _is_config(call: ast.Call) -> bool:
    """Whether a function is asked about what is called a configuration."""
    first = call.args[0] if call.args else None
    return isinstance(first, (ast.Name, ast.Attribute)) and ast.unparse(first).rpartition(".")[2] in ("config", "cfg")


def _instead(functions: list[FunctionModel], config: ClassModel, name: str, default: int | float) -> Hits:
    text = f"{{}} is written down here, and {config.name}.{name} is used nowhere"
    told = False
    for function in functions:
        for node, value in _numbers_for(function, name):
            told = True
            yield Hit(function.file, node, text.format(f"{value:g}"), f"write config.{name}")
    if told or default < _SMALLEST or isinstance(default, float):
        return
    for function in functions:
        for call in function.calls if function.name == "__init__" else ():
            if (function.file.qualified(call.func) or "").startswith("torch.nn."):
                for argument in call.args:
                    if function.file.value(argument) == default and isinstance(argument, (ast.Constant, ast.Name)):
                        yield Hit(function.file, argument, text.format(f"{default:g}"), f"write config.{name}")


def _numbers_for(function: FunctionModel, name: str) -> Iterator[tuple[ast.expr, int | float]]:
    """Yield numbers that are given to a parameter that has the field's name, or a telling word of it."""
    file = function.file
    for call in function.calls:
        found = resolve(file, call, function.cls)
        called = found.method("__init__") if isinstance(found, ClassModel) else found
        given = {item.arg: item.value for item in call.keywords if item.arg is not None}
        if isinstance(called, FunctionModel):
            given = bind(call, called)
            if not has_unpacking(call):
                for parameter in called.parameters:
                    value = called.default(parameter)
                    if value is not None and parameter not in given and _speaks_of(parameter, name):
                        number = _number(called.file, value)
                        if isinstance(number, float) and called.file is file:
                            yield value, number
        for parameter, value in given.items():
            number = _number(file, value) if _speaks_of(parameter, name) else None
            if number is not None:
                yield value, number
    if {"theta", "base"} & _words(name) and re.search("rot|rope|freq", function.name):
        for power in file.index.nodes(ast.BinOp, function.node):
            number = _number(file, power.left) if isinstance(power.op, ast.Pow) else None
            if number is not None and number > 100:
                yield power.left, number
    for target, value in function.assignments:
        number = _number(file, value) if _speaks_of(target.lstrip("."), name) and function.name != "forward" else None
        if number is not None:
            yield value, number


def _number(file: PythonFile, node: ast.expr) -> int | float | None:
    value = file.value(node) if isinstance(node, (ast.Constant, ast.Name, ast.BinOp, ast.Attribute)) else UNKNOWN
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _words(name: str) -> set[str]:
    return set(name.lower().split("_")) - _VAGUE


def _speaks_of(parameter: str, name: str) -> bool:
    """Whether a parameter is the field by its name: ``rope_theta``, ``theta`` or ``base`` for ``rope_theta``."""
    own, other = _words(name), _words(parameter)
    if parameter == name:
        return True
    others = {_OTHER.get(word, word) for word in other}
    return len(own) == 1 and bool(other) and (other <= own or others <= own)


def _twins(package: Package, config: ClassModel) -> Hits:
    """Look at twins of which one is built with a field of the configuration and the other with a number."""
    suffixes = twin_suffixes(package)
    for cls in dict.fromkeys(part.owner for part in package.module_tree):
        built = {part.name: part for part in submodules(cls)} if suffixes and cls.file in package.files else {}
        pairs = ((part, built.get(f"{name}{suffix}")) for name, part in built.items() for suffix in suffixes)
        for part, twin in pairs:
            if twin is None or len(part.call.args) != len(twin.call.args):
                continue
            one = {item.arg: item.value for item in part.call.keywords} | dict(enumerate(part.call.args))
            two = {item.arg: item.value for item in twin.call.keywords} | dict(enumerate(twin.call.args))
            for at in one.keys() & two.keys():
                for first, second in ((one[at], two[at]), (two[at], one[at])):
                    number = _number(cls.file, second)
                    if isinstance(number, float) and isinstance(first, ast.Attribute) and first.attr in config.fields:
                        text = f"{number:g} is written down here, its twin is built with {ast.unparse(first)}"
                        yield Hit(cls.file, second, text, f"write {ast.unparse(first)}")


_FIELD = (
    "    max_latent_size: int = 8\n",
    "    max_latent_size: int = 8\n    rope_theta: float = 1000000.0\n    rms_norm_eps: float = 1e-6\n",
)
_TABLES = """def rotary_tables(positions: Tensor, size: int, theta: float{default}) -> tuple[Tensor, Tensor]:
    rates = {base} ** -(torch.arange(0, size, 2, device=positions.device) / size)
    angles = positions.float()[:, :, None] * rates
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


class RMSNorm("""
_FORWARD = "        for layer in self.layers:\n"
_USE = (
    "        places = torch.arange(latents.shape[1], device=device)[None]\n"
    "        cos, sin = rotary_tables(places, latents.shape[2], {theta})\n"
    "        first, second = latents.chunk(2, dim=-1)\n"
    "        latents = latents * cos + torch.cat((-second, first), dim=-1) * sin\n"
)
_EPS = "1e-6)"
_TIMES = "        self.time_embedder = TimestepEmbedder(config.hidden_size)\n"


def _example(
    title: str,
    *changes: tuple[str, str],
    theta: str = "self.config.rope_theta",
    base: str = "theta",
    default: str = "",
    eps: str = "config.rms_norm_eps",
    first: str = "",
) -> Example:
    norm = [
        ("    def __init__(self, size: int):\n", "    def __init__(self, size: int, eps: float):\n"),
        (
            "        self.weight = nn.Parameter(torch.ones(size))\n",
            "        self.weight = nn.Parameter(torch.ones(size))\n        self.eps = eps\n",
        ),
        (_EPS, "self.eps)"),
        (
            "self.input_layernorm = RMSNorm(config.hidden_size)",
            f"self.input_layernorm = RMSNorm(config.hidden_size, {eps})",
        ),
        (
            "self.input_layernorm_gen = RMSNorm(config.hidden_size)",
            f"self.input_layernorm_gen = RMSNorm(config.hidden_size, {first or eps})",
        ),
        ("self.norm = RMSNorm(config.hidden_size)", f"self.norm = RMSNorm(config.hidden_size, {eps})"),
    ]
    rotary = [
        ("class RMSNorm(", _TABLES.format(base=base, default=default)),
        (_FORWARD, _USE.format(theta=theta) + _FORWARD),
    ]
    return Example(title, {"model": [_FIELD, *norm, *rotary, *changes]})


FAILING = (
    _example("a base from memory", theta="«10000.0»"),
    _example("a default", theta="", default=" = «10000.0»"),
    _example("in the formula", ("size: int, theta: float)", "size: int)"), base="«10000.0»", theta=""),
    _example(
        "handed over, and another one used", ("size: int, theta: float)", "size: int, «theta»: float)"), base="10000.0"
    ),
    _example(
        "handed over and not kept",
        ("(self, size: int, eps: float)", "(self, size: int, «eps»: float)"),
        ("        self.eps = eps\n", "        self.eps = 1e-5\n"),
    ),
    _example("a width", ("nn.Embedding(config.vocab_size,", "nn.Embedding(«128»,")),
    _example("an epsilon, of one of two twins", first="«1e-5»"),
    _example(
        "an epsilon, of twins that stand alone in their class",
        (_TIMES, "        self.norm_gen = RMSNorm(config.hidden_size, «1e-5»)\n" + _TIMES),
        ("self.llm2vae(self.norm(latents))", "self.llm2vae(self.norm_gen(latents))"),
    ),
)
PASSING = (
    _example("fields"),
    _example("a field by its name", theta='getattr(self.config, "rope_theta")'),
    Example(
        "a field that nothing needs",
        {"model": [("    latent_dim: int = 16\n", "    latent_dim: int = 16\n    timestep_shift: float = 1.0\n")]},
    ),
)
