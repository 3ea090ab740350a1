"""Where the forward code keeps its padding mask: names, attributes and keywords that hold it."""

from __future__ import annotations

import ast

from scaffold.check.model.calls import resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.reach import name_called_on_self
from scaffold.check.model.streams import reads


class HeldMasks:
    """Names of each function, and ``.attributes`` of any object, that hold the mask or something made of it."""

    def __init__(self, functions: list[FunctionModel]) -> None:
        self.functions = functions
        self.names: dict[FunctionModel, set[str]] = {function: set() for function in functions}
        self.everywhere: set[str] = set()

    def of(self, function: FunctionModel) -> set[str]:
        """Return what holds it in a function."""
        return self.names.get(function, set()) | self.everywhere

    @property
    def size(self) -> int:
        """How much is known, to see when nothing more comes."""
        return len(self.everywhere) + sum(map(len, self.names.values()))

    def assign(self, function: FunctionModel) -> None:
        """Follow the assignments of a function."""
        for name, value in function.assignments:
            # An object that is built from a mask hides nothing by itself: its attributes may.
            built = isinstance(value, ast.Call) and _has_init(resolve(function.file, value, function.cls))
            if not built and reads(value, self.of(function), is_count):
                (self.everywhere if name.startswith(".") else self.names[function]).add(name)

    def hand_on(self, function: FunctionModel, call: ast.Call) -> None:
        """Follow the arguments of a call."""
        given = [value for value in call.args if reads(value, self.of(function), is_count)]
        named = [item for item in call.keywords if reads(item.value, self.of(function), is_count)]
        if not given and not named:
            return
        targets, skip = self._targets(function, call)
        for target in targets:
            handed = call.args[skip:]
            # What `*inputs` spreads, and what `*args` takes in, may be any of them.
            loose = any(isinstance(value, ast.Starred) for value in given)
            names = set(target.positional) if loose else set()
            names |= {name for name, value in zip(target.positional, handed, strict=False) if value in given}
            if target.vararg and (loose or any(value in given for value in handed[len(target.positional) :])):
                names.add(target.vararg)
            self.names[target] |= names | {item.arg for item in named if item.arg}
        if not targets and not (function.file.qualified(call.func) or "").startswith("torch."):
            # Where it goes is not known: perhaps to whatever parameter has that name.
            self.everywhere |= {value.id for value in given if isinstance(value, ast.Name)}
            self.everywhere |= {item.arg for item in named if item.arg}

    def _targets(self, function: FunctionModel, call: ast.Call) -> tuple[list[FunctionModel], int]:
        called = resolve(function.file, call, function.cls)
        if isinstance(called, ClassModel):
            called = called.method("forward" if name_called_on_self(function, call) else "__init__")
        if isinstance(called, FunctionModel) and called in self.names:
            return [called], 0
        return _handed(call, [f for f in self.functions if f.name == "forward"]), int("checkpoint" in _name(call))


def held_masks(functions: list[FunctionModel], forward: FunctionModel, masks: list[str]) -> HeldMasks:
    """Follow the mask through the forward code."""
    held = HeldMasks(functions)
    held.names.setdefault(forward, set()).update(masks)
    before = -1
    while held.size > before:
        before = held.size
        for function in functions:
            held.assign(function)
            for call in function.calls:
                held.hand_on(function, call)
    return held


def _has_init(called: object) -> bool:
    return isinstance(called, ClassModel) and called.method("__init__") is not None and not called.method("forward")


def _handed(call: ast.Call, forwards: list[FunctionModel]) -> list[FunctionModel]:
    """Return the methods that a checkpointed call may get to: those that take as many arguments as it hands on."""
    name = _name(call)
    direct = isinstance(call.func, ast.Name) and name in ("layer", "block")
    if "checkpoint" not in name and not direct and name != "forward":
        return []
    if any(isinstance(value, ast.Starred) for value in call.args):
        return forwards
    count = len(call.args) - (1 if "checkpoint" in name else 0)
    return [f for f in forwards if len(f.positional) >= count and len(f.required) <= count + len(call.keywords)]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def is_count(node: ast.AST) -> bool:
    """Whether a node only counts: lengths taken from a mask do not hide anything."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("sum", "cumsum", "all", "any", "argmax", "ones_like", "zeros_like", "new_ones")
    )
