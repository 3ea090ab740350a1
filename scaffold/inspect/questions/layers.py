"""The repeated layer classes of the denoiser: what FSDP wraps."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import class_name, options
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Attr, Call, Const, Item, Obj, Seq
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.source.values import External, Func, Value

ORDER = 7
KEYS = (
    "answers.layers.classes",
    "detail.layers.path",
    "detail.layers.activation",
)
_SPLIT, _SPLIT_LIST = "make_layers", 2
"""Gives the first and the last layer of this process, and third the list."""
_FILLED = ("append", "extend", "insert")
_ACTIVATIONS = {"SiluAndMul": "silu", "SiLU": "silu", "GELU": "gelu", "GeluAndMul": "gelu", "NewGELU": "gelu_tanh",
                "QuickGELU": "quick_gelu"}  # fmt: skip
MAX_OBJECTS = 60


def answers(program: Program) -> dict[str, Fact]:
    found = repeated_layers(program)
    if not found:
        return {}
    layers: dict[str, Obj] = {}
    for layer, _ in found:
        layers.setdefault(layer.cls.name, layer)
    paths = {path: layer.at for layer, path in found}
    facts: dict[str, Fact] = {
        "answers.layers.classes": fact(list(layers), [p for o in layers.values() for p in _places(o)]),
        "detail.layers.path": fact(list(paths), list(paths.values())),
    }
    facts.update(_inside(program, next(iter(layers.values()))))
    return facts


@once
def repeated_layers(program: Program) -> list[tuple[Obj, str]]:
    """Layers of the denoiser held in lists, each class of each list once, with the list's dotted path."""
    found = find_denoiser(program)
    roots = options(found.receiver) if found is not None else []
    layers: dict[tuple[str, str], tuple[Obj, str]] = {}
    for root in roots:
        for layer, path in _repeated(program, root) if isinstance(root, Obj) else []:
            layers.setdefault((layer.cls.name, path), (layer, path))
    return list(layers.values())


def _places(layer: Obj) -> list[Evidence]:
    place = Evidence(layer.cls.module.file, layer.cls.node.lineno)
    return [place, layer.at] if layer.at is not None else [place]


def _repeated(program: Program, root: Obj) -> list[tuple[Obj, str]]:
    """Objects of the source held in module lists at or below ``root``; lists inside them are not entered."""
    found: list[tuple[Obj, str]] = []
    queue: list[tuple[Obj, str]] = [(root, "")]
    seen: set[int] = set()
    entered = 0
    while queue and entered < MAX_OBJECTS:
        obj, prefix = queue.pop(0)
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        entered += 1
        if obj.json_file is not None and obj.cls.is_module:
            # Its sizes come from a file, what it is made of from its constructor.
            obj = Obj(obj.cls, at=obj.at)
        program.execution.attributes.ensure_ready(obj)
        for name, held in list(obj.attrs.items()):
            path = f"{prefix}.{name}" if prefix else name
            for option in options(held):
                if isinstance(option, Obj) and option.root is None and option.cls.is_module:
                    queue.append((option, path))
                elif id(option) not in seen:
                    # A list that two objects hold has the name under which it was held first.
                    seen.add(id(option))
                    found.extend((layer, path) for layer in _listed(program, option))
    return found


def _listed(program: Program, value: Value) -> list[Obj]:
    """The layers of a list: what one expression or a loop makes, or what stands in it more than once."""
    if isinstance(value, Item) and isinstance(value.base, Call) and value.base.name == _SPLIT:
        value = value.base if default_of(value.key) == _SPLIT_LIST else value
    if not (isinstance(value, Call) and isinstance(value.func, (External, Attr))):
        return []
    if value.name not in ("ModuleList", _SPLIT):
        return []
    layers: list[Obj] = []
    for argument in value.args:
        if isinstance(argument, Func):
            made = program.execution.call(argument, [Const("")], {}, value.at)
            layers.extend(o for o in options(made) if isinstance(o, Obj))
        for given in options(argument):
            if isinstance(given, Seq):
                layers.extend(_several(given.items, given.exact))
    layers.extend(_put_in(program, value))
    return [layer for layer in layers if layer.cls.is_module]


def _several(items: list[Value], exact: bool) -> list[Obj]:
    """Objects whose class comes more than once; of a list that holds nothing else, any."""
    kinds = [{o.cls.name for o in options(item) if isinstance(o, Obj)} for item in items]
    names = [name for kind in kinds for name in kind]
    alike = not exact or (all(kinds) and len(set(names)) == 1)
    objects = [o for item in items for o in options(item) if isinstance(o, Obj)]
    return [o for o in objects if alike or names.count(o.cls.name) > 1]


def _put_in(program: Program, made: Call) -> list[Obj]:
    """The same of what is put into a list after it was made."""
    given: list[Value] = []
    turns = False
    for record in program.trace.calls:
        if record.receiver is made and record.method in _FILLED and record.args:
            turns = turns or bool(record.loops)
            argument = record.args[-1]
            given += argument.items if isinstance(argument, Seq) else [argument]
    return _several(given, not turns)


def _inside(program: Program, layer: Obj) -> dict[str, Fact]:
    """The activation between two linear layers, if there is one."""
    activations: dict[str, Evidence | None] = {}
    for obj in _parts_of(program, layer):
        # One that a single linear layer follows belongs to a modulation.
        between = sum("Linear" in (_class_name(o) or "") for v in obj.attrs.values() for o in options(v)[:1]) > 1
        for option in (o for held in obj.attrs.values() for o in options(held)):
            made = _class_name(option)
            if made in _ACTIVATIONS and between:
                activations.setdefault(_ACTIVATIONS[made], option.at)
    if len(activations) != 1:
        return {}
    ((activation, at),) = activations.items()
    return {"detail.layers.activation": fact(activation, [at])}


def _parts_of(program: Program, layer: Obj) -> list[Obj]:
    """A layer, its modules, and theirs."""
    objects = [layer]
    for inner in _modules(program, layer):
        objects.append(inner)
        objects.extend(_modules(program, inner))
    for obj in objects:
        program.execution.attributes.ensure_ready(obj)
    return objects


def _modules(program: Program, obj: Obj) -> list[Obj]:
    program.execution.attributes.ensure_ready(obj)
    return [o for v in obj.attrs.values() for o in options(v) if isinstance(o, Obj) and o.cls.is_module]


def _class_name(value: Value) -> str | None:
    return class_name(value) if isinstance(value, (Obj, Call)) else None
