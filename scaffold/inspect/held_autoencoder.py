"""The autoencoder that a pipeline holds, where the call that decodes its sample was not followed."""

from __future__ import annotations

import re

from scaffold.inspect.facts import UNKNOWN, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, is_none, options
from scaffold.inspect.program.values import Attr, Call, Item, Map, Obj, Slot
from scaffold.source.values import ClassRef, External, Value

_HELD = re.compile(r"(?:video_|image_)?vae")
_CLASS = re.compile(r"vae|autoencoder", re.IGNORECASE)
_PLACED = frozenset(("to", "eval", "cuda", "half", "bfloat16", "requires_grad_"))


def held_autoencoder(program: Program) -> Fact:
    """The one class of autoencoders under the usual names of such an attribute; sound has its own.

    ``certain`` where its one construction is seen to decode.
    """
    found: dict[str, Fact] = {}
    for attribute, value in program.pipeline.attrs.items():
        if not _HELD.fullmatch(attribute):
            continue
        made = [placed(o) for o in options(value) if not is_none(o) and not isinstance(o, Slot)]
        names = {name for o in made for name in class_names(program, o)}
        if not made or len(names) != 1:
            return UNKNOWN
        name = names.pop()
        if name is None or not _CLASS.search(name):
            return UNKNOWN
        decoding = [r.at for r in program.trace.calls if r.method == "decode" and _is_one_of(r.receiver, made)]
        sure = decoding and all(class_name(o) == name for o in made)
        found.setdefault(name, fact(name, [made[0].at, *decoding[:1]], "certain" if sure else "likely"))
    return next(iter(found.values())) if len(found) == 1 else UNKNOWN


def class_names(program: Program, value: Value) -> set[str | None]:
    """The classes that a value may be an instance of; None where one is not known."""
    known = class_name(value)
    if known is not None:
        return {known}
    func = value.func if isinstance(value, Call) else None
    maker = func.base if isinstance(func, Attr) and func.name.startswith("from_") else func
    return {_name(cls) for cls in _alternatives(program, maker)} if maker is not None else {None}


def placed(value: Value) -> Value:
    """The module that was moved or switched to inference."""
    while isinstance(value, Call) and isinstance(value.func, Attr) and value.func.name in _PLACED:
        value = value.func.base
    return value


def _alternatives(program: Program, value: Value) -> list[Value]:
    """What an entry of a table, or an attribute of one, may be."""
    if isinstance(value, Item) and isinstance(value.base, Map):
        return [*value.base.items.values(), *value.base.unkeyed]
    if isinstance(value, Attr):
        return [_attribute(program, held, value.name) for held in _alternatives(program, value.base)]
    return [value]


def _attribute(program: Program, value: Value, name: str) -> Value:
    replaced = isinstance(value, Call) and isinstance(value.func, External) and value.func.path == "dataclasses.replace"
    if isinstance(value, Call) and replaced and value.args:
        return value.kwargs[name] if name in value.kwargs else _attribute(program, value.args[0], name)
    return program.execution.get_attr(value, name, value.at) if isinstance(value, Obj) else value


def _name(value: Value) -> str | None:
    if isinstance(value, ClassRef):
        return value.cls.name
    last = value.path.rpartition(".")[2] if isinstance(value, External) else ""
    return last if last[:1].isupper() else None


def _is_one_of(receiver: Value | None, made: list[Value]) -> bool:
    return receiver is not None and any(placed(o) is m for o in options(receiver) for m in made)
