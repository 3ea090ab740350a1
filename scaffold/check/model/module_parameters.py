"""Names of the parameters that a module and what it builds have for certain."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.always_built import always_built, always_runs
from scaffold.check.model.calls import argument, has_unpacking
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.module_paths import INDEX
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.submodules import Submodule, submodules

_DEEPEST = 12


def built_parameters(cls: ClassModel, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Submodule, ClassModel]]:
    """Yield the parameters whose names are certain, with what builds them."""
    for built in submodules(cls) if depth < _DEEPEST else ():
        name = prefix + built.name + (f".{_index(built)}" if built.repeated else "")
        if not always_built(cls, built):
            continue
        if built.cls is not None:
            yield from built_parameters(built.cls, f"{name}.", depth + 1)
        elif built.qualified in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
            yield prefix + built.name, built, cls
        elif built.qualified in ("torch.nn.Linear", "torch.nn.Conv2d", "torch.nn.Embedding", "torch.nn.RMSNorm"):
            yield f"{name}.weight", built, cls
            if built.qualified == "torch.nn.Linear" and _has_bias(built.file, built.made):
                yield f"{name}.bias", built, cls


def built_buffers(cls: ClassModel, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, PythonFile, ast.Call]]:
    """Yield the buffers that are saved with the weights for certain, with the call that registers each."""
    for owner in cls.mro:
        start = owner.methods.get("__init__")
        for call in start.calls if start is not None else ():
            own = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
            if not own or not isinstance(call.func, ast.Attribute) or call.func.attr != "register_buffer":
                continue
            if start is None or not always_runs(start, call):
                continue
            name, value = (argument(call, key, at) for at, key in enumerate(("name", "tensor")))
            kept = argument(call, "persistent", 2)
            text = owner.file.value(name) if name is not None else None
            none = isinstance(value, ast.Constant) and value.value is None
            saved = kept is None or owner.file.value(kept) is True
            if isinstance(text, str) and value is not None and not none and saved and not has_unpacking(call):
                yield prefix + text, owner.file, call
    for built in submodules(cls) if depth < _DEEPEST else ():
        if built.cls is not None and always_built(cls, built):
            inner = prefix + built.name + (f".{_index(built)}" if built.repeated else "")
            yield from built_buffers(built.cls, f"{inner}.", depth + 1)


def _index(built: Submodule) -> str:
    """Return the place of an element where `nn.Sequential` lists it, else a mark that stands for any."""
    index = built.file.index
    around = index.parent(built.call)
    if isinstance(around, ast.Call) and built.file.qualified(around.func) == "torch.nn.Sequential":
        items = list(around.args)
        if built.call in items and not any(isinstance(item, ast.Starred) for item in items):
            return str(items.index(built.call))
    return INDEX


def _has_bias(file: PythonFile, call: ast.Call) -> bool:
    bias = argument(call, "bias", 2)
    return bias is None or file.value(bias) is True
