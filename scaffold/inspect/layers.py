"""The repeated layer classes of the denoiser: what FSDP wraps."""

from __future__ import annotations

from scaffold.inspect.denoiser import find_denoiser
from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, options, walk
from scaffold.inspect.program.values import Attr, Call, Const, External, Func, Obj, Op, Seq, Value

ORDER = 7
KEYS = (
    "answers.layers.classes",
    "detail.layers.path",
    "detail.layers.module",
    "detail.layers.qk_norm",
    "detail.layers.activation",
    "detail.layers.expert_suffix",
)
_LISTS = ("ModuleList", "Sequential", "make_layers")
_ACTIVATIONS = {"SiluAndMul": "silu", "SiLU": "silu", "GELU": "gelu", "GeluAndMul": "gelu", "NewGELU": "gelu_tanh",
                "QuickGELU": "quick_gelu"}  # fmt: skip
MAX_OBJECTS = 60


def answers(program: Program) -> dict[str, Fact]:
    found = find_denoiser(program)
    if found is None or found.receiver is None:
        return {}
    roots = [o for o in options(found.receiver) if isinstance(o, Obj)]
    layers: dict[str, tuple[Obj, str]] = {}
    for root in roots:
        for layer, path in _repeated(program, root):
            layers.setdefault(layer.cls.name, (layer, path))
    if not layers:
        return {}
    facts: dict[str, Fact] = {
        "answers.layers.classes": fact(list(layers), [p for o, _ in layers.values() for p in _places(o)]),
        "detail.layers.path": fact([path for _, path in layers.values()], [o.at for o, _ in layers.values()]),
        "detail.layers.module": fact(
            [o.cls.module.name for o, _ in layers.values()], [_places(o)[0] for o, _ in layers.values()]
        ),
    }
    facts.update(_inside(program, next(iter(layers.values()))[0]))
    return facts


def _places(layer: Obj) -> list[Evidence]:
    place = Evidence(layer.cls.module.file, layer.cls.node.lineno)
    return [place, layer.at] if layer.at is not None else [place]


def _repeated(program: Program, root: Obj) -> list[tuple[Obj, str]]:
    """Objects of the source held in module lists at or below ``root``; lists inside them are not entered."""
    found: list[tuple[Obj, str]] = []
    queue: list[tuple[Obj, str]] = [(root, "")]
    seen: set[int] = set()
    while queue and len(seen) < MAX_OBJECTS:
        obj, prefix = queue.pop(0)
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        if obj.json_file is not None and obj.cls.is_module:
            # Its sizes come from a file, what it is made of from its constructor.
            obj = Obj(obj.cls, at=obj.at)
        program.ensure_ready(obj)
        for name, held in list(obj.attrs.items()):
            path = f"{prefix}.{name}" if prefix else name
            for option in options(held):
                if isinstance(option, Obj) and option.root is None and option.cls.is_module:
                    queue.append((option, path))
                elif isinstance(option, Call):
                    found.extend((layer, path) for layer in _listed(program, option))
    return found


def _listed(program: Program, value: Call) -> list[Obj]:
    if not (isinstance(value.func, External | Attr) and value.name in _LISTS[:1] + _LISTS[2:]):
        return []
    layers: list[Obj] = []
    for argument in value.args:
        if isinstance(argument, Func):
            made = program.call(argument, [Const("")], {}, value.at)
            layers.extend(o for o in options(made) if isinstance(o, Obj))
        elif isinstance(argument, Seq):
            layers.extend(o for item in argument.items for o in options(item) if isinstance(o, Obj))
    return [layer for layer in layers if layer.cls.is_module]


def _inside(program: Program, layer: Obj) -> dict[str, Fact]:
    """Norms of queries and keys, the activation, and the suffix of a second set of weights."""
    facts: dict[str, Fact] = {}
    objects = [layer]
    for inner in _modules(program, layer):
        objects.append(inner)
        objects.extend(_modules(program, inner))
    norms: list[Evidence | None] = []
    suffixes: dict[str, Evidence | None] = {}
    for obj in objects:
        program.ensure_ready(obj)
        for name, held in obj.attrs.items():
            for option in options(held):
                made = _class_name(option)
                if made is None:
                    continue
                if "Norm" in made and _is_head_norm(option):
                    norms.append(option.at)
                if made in _ACTIVATIONS:
                    facts.setdefault("detail.layers.activation", fact(_ACTIVATIONS[made], [option.at]))
                for other, twin in obj.attrs.items():
                    if other != name and other.startswith(name) and _class_name(twin) == made:
                        suffixes.setdefault(other[len(name) :], twin.at)
    facts["detail.layers.qk_norm"] = fact(len(norms) >= 2, norms or _places(layer), "certain" if norms else "likely")
    if len(suffixes) == 1:
        suffix, place = next(iter(suffixes.items()))
        if suffix.startswith("_") and not suffix[1:].isdigit():
            facts["detail.layers.expert_suffix"] = fact(suffix, [place])
    return facts


def _modules(program: Program, obj: Obj) -> list[Obj]:
    program.ensure_ready(obj)
    return [o for v in obj.attrs.values() for o in options(v) if isinstance(o, Obj) and o.cls.is_module]


def _class_name(value: Value) -> str | None:
    return class_name(value) if isinstance(value, Obj | Call) else None


def _is_head_norm(value: Value) -> bool:
    """Whether a norm spans one head: its size is a quotient, hidden size by heads."""
    size = value.args[0] if isinstance(value, Obj | Call) and value.args else None
    if size is None and isinstance(value, Obj | Call):
        size = next(iter(value.kwargs.values()), None)
    if size is None:
        return False
    if any(isinstance(n, Attr) and n.name in ("head_dim", "head_size") for n in options(size)):
        return True
    return any(isinstance(n, Op) and n.op == "//" for o in options(size) for n in walk(o))
