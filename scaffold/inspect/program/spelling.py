"""Python text of symbolic values, over the few names that rendered code has: only what computes the very same number.

Text is made of constants, arithmetic, grids of numpy and torch, the number of steps, sizes of the sample and what the
named objects hold. Anything else, a choice that nobody decided included, has no text.
"""

from __future__ import annotations

from collections.abc import Mapping

from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.schedule import STEPS_KEY
from scaffold.inspect.program.values import Attr, Call, Choice, Conf, Const, Item, Op, Param, Seq, Slice
from scaffold.source.values import External, Value

STEPS = "num_inference_steps"
SIZE = "latent_size"
_BINARY = frozenset(("+", "-", "*", "/", "//", "%", "**"))
_FUNCTIONS = {
    "numpy.linspace": "np.linspace",
    "numpy.sqrt": "np.sqrt",
    "torch.linspace": "torch.linspace",
    "math.sqrt": "math.sqrt",
    "math.exp": "math.exp",
    "math.log": "math.log",
    "builtins.max": "max",
    "builtins.min": "min",
    "builtins.round": "round",
    "builtins.abs": "abs",
    "torch.cos": "torch.cos",
    "torch.sin": "torch.sin",
    "torch.exp": "torch.exp",
    "torch.sqrt": "torch.sqrt",
    "torch.flip": "torch.flip",
    "torch.cat": "torch.cat",
    "torch.zeros": "torch.zeros",
    "numpy.append": "np.append",
    "numpy.concatenate": "np.concatenate",
}
_CONSTANTS = {"math.pi": "math.pi", "torch.pi": "torch.pi", "numpy.pi": "np.pi"}
_DTYPES = {"numpy.float32": "np.float32", "numpy.float64": "np.float64", "torch.float32": "torch.float32"}
_FILES = {"GenerationConfig.from_pretrained": "generation_config.json"}
_DEPTH = 24


def spell(value: Value | None, names: Mapping[int, str], sample: Value | None = None, depth: int = 0) -> str | None:
    """Return an expression that computes a value; None where there is none.

    Args:
        value: what to compute.
        names: names of values by ``id``.
        sample: the sample before the loop; its last two sizes are ``latent_size[0]`` and ``latent_size[1]``.
        depth: how deep in the expression it stands.
    """
    if value is None or depth > _DEPTH:
        return None
    if id(value) in names:
        return names[id(value)]

    def inner(other: Value | None) -> str | None:
        return spell(other, names, sample, depth + 1)

    if isinstance(value, Const):
        return repr(value.value) if isinstance(value.value, bool | int | float | str | None) else None
    if isinstance(value, Param):
        return _parameter(value, inner(value.default))
    if isinstance(value, External):
        return _DTYPES.get(value.path) or _CONSTANTS.get(value.path)
    if isinstance(value, Op):
        return _operation(value, [inner(a) for a in value.args])
    if isinstance(value, Conf):
        return _configured(value)
    if isinstance(value, Choice):
        return _chosen(value, names, sample, depth)
    if isinstance(value, Slice):
        bounds = [inner(b) if b is not None else "" for b in (value.lower, value.upper)]
        return f"{bounds[0]}:{bounds[1]}" if None not in bounds and value.step is None else None
    if isinstance(value, Item):
        base, key = inner(value.base), inner(value.key)
        return _size(value, sample) or (f"{base}[{key}]" if base is not None and key is not None else None)
    if isinstance(value, Seq) and value.exact:
        items = [inner(item) for item in value.items]
        return None if None in items else f"[{', '.join(map(str, items))}]"
    if isinstance(value, Attr):
        setting = _setting(value)
        if setting is not None:
            return setting
        held = inner(value.base)
        return f"{held}.{value.name}" if held is not None and value.name == "config" else None
    if isinstance(value, Call):
        return _called(value, [inner(a) for a in value.args], {k: inner(v) for k, v in value.kwargs.items()}, inner)
    return None


def _parameter(value: Param, default: str | None) -> str | None:
    """The number of steps, or what nobody sets in training: a request's own schedule, an option of the engine."""
    if value.key.rpartition(".")[2] == STEPS_KEY:
        return STEPS
    return default if value.default is not None else None


def _configured(value: Conf) -> str | None:
    """A number of a JSON file of the checkpoint, with the default that the source has for it."""
    default = default_of(value.default)
    if (
        not value.file
        or not value.path
        or not all(isinstance(k, str) for k in value.path)
        or not isinstance(default, (int, float))
    ):
        return None
    return f"setting(model_path, {value.file!r}, {list(value.path)!r}, {default!r})"


def _setting(value: Attr) -> str | None:
    """An entry of a JSON file of the checkpoint that a library reads."""
    loaded = value.base
    if isinstance(loaded, Call) and isinstance(loaded.func, External):
        file = _FILES.get(".".join(loaded.func.path.split(".")[-2:]))
        if file is not None:
            return f"setting(model_path, {file!r}, [{value.name!r}])"
    return None


def _operation(value: Op, args: list[str | None]) -> str | None:
    if value.op == "or" and len(args) == 2 and args[0] == STEPS:
        return STEPS  # the other alternative applies if no number is requested
    if any(a is None for a in args):
        return None
    if value.op == "neg":
        return f"(-{args[0]})"
    return f"({args[0]} {value.op} {args[1]})" if value.op in _BINARY and len(args) == 2 else None


def _chosen(value: Choice, names: Mapping[int, str], sample: Value | None, depth: int) -> str | None:
    truth = default_of(value.cond) if value.cond is not None and len(value.options) == 2 else MISSING
    if truth is not MISSING:
        return spell(value.options[0 if truth else 1], names, sample, depth + 1)
    if _asks_for_none(value):
        return STEPS
    counting = [o for o in value.options if _counts_steps(o)]
    if len(counting) == 1:
        return spell(counting[0], names, sample, depth + 1)  # the others apply to requests without a number of steps
    found = {spell(o, names, sample, depth + 1) for o in options(value)}
    return found.pop() if len(found) == 1 else None


def _counts_steps(value: Value) -> bool:
    """Whether the number of steps that a request asks for goes into a value."""
    return any(isinstance(node, Param) and node.key.rpartition(".")[2] == STEPS_KEY for node in walk(value))


def _asks_for_none(value: Choice) -> bool:
    """Whether one option is the number of steps and the condition only asks whether there is one."""
    cond = value.cond
    if not (isinstance(cond, Op) and cond.op in ("is", "isnot") and isinstance(cond.args[0], Param)):
        return False
    asked = cond.args[0]
    return asked.key.rpartition(".")[2] == STEPS_KEY and any(o is asked for o in value.options)


def _size(value: Item, sample: Value | None) -> str | None:
    """One of the last two sizes of the sample."""
    if not (isinstance(value.base, Attr) and value.base.name == "shape" and isinstance(value.key, Const)):
        return None
    key = value.key.value
    if sample is None or key not in (-1, -2) or not _is_whole_sample(value.base.base, sample):
        return None
    return f"{SIZE}[{key + 2}]"


def _is_whole_sample(value: Value, sample: Value) -> bool:
    return value is sample or {id(o) for o in options(value)} == {id(o) for o in options(sample)}


def _called(value: Call, args: list[str | None], kwargs: dict[str, str | None], inner: object) -> str | None:
    assert callable(inner)
    shown = {k: v for k, v in kwargs.items() if k != "device"}
    if any(a is None for a in (*args, *shown.values())):
        return None
    if isinstance(value.func, External):
        name = _FUNCTIONS.get(value.func.path)
    elif isinstance(value.func, Attr) and value.func.name == "new_zeros":
        name = "torch.zeros"
    elif isinstance(value.func, Attr) and value.func.name == "get":
        held = inner(value.func.base)
        name = f"{held}.get" if held is not None and held.endswith(".config") else None
    else:
        name = None
    if name is None:
        return None
    return f"{name}({', '.join([*map(str, args), *(f'{k}={v}' for k, v in shown.items())])})"
