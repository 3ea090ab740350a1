"""The two sides of an integration: the functions that its adapters reach, and the calls of each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

from scaffold.check.model.calls import resolve
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.files.layout import PIPELINES

Which = Literal["training", "rollout"]
_MOST = 600


class Side:
    """One side.

    Attributes:
        adapters: its adapter classes.
        functions: methods of the adapters, inherited ones of the tree's packages included, what they call, and the
            methods of classes that they make; code of ``nn.Module`` classes and of verl-omni itself is left out.
        callers: function -> the calls of it, with the function around each.
    """

    def __init__(self, adapters: list[ClassModel]) -> None:
        self.adapters = adapters
        self.callers: dict[FunctionModel, list[tuple[FunctionModel, ast.Call]]] = {}
        self._called: dict[ast.Call, FunctionModel | None] = {}
        self._named: dict[str, list[tuple[FunctionModel, ast.Call]]] | None = None
        # Cache of other modules that analyse a side; they know the types.
        self.answers: dict[Any, Any] = {}
        self._receivers: dict[FunctionModel, ClassModel | None] = {}
        self.functions = self._collect()
        self._known = set(self.functions)

    def __contains__(self, function: object) -> bool:
        return function in self._known

    def receiver(self, function: FunctionModel) -> ClassModel | None:
        """Return the class that ``self`` and ``cls`` are in a function of this side."""
        return self._receivers.get(function, function.cls)

    def called(self, function: FunctionModel, call: ast.Call) -> FunctionModel | None:
        """Return the function of this side that a call of one of its functions calls."""
        if call not in self._called:
            found = resolve(function.file, call, self.receiver(function))
            self._called[call] = found if isinstance(found, FunctionModel) else None
        called = self._called[call]
        return called if called in self._known else None

    def calls(self, *names: str) -> Iterator[tuple[FunctionModel, ast.Call]]:
        """Yield the calls of methods or functions of one of the names, with the function around each."""
        if self._named is None:
            self._named = {}
            for function in self.functions:
                for call in function.calls:
                    target = call.func
                    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
                    self._named.setdefault(name, []).append((function, call))
        for name in names:
            yield from self._named.get(name, [])

    def _collect(self) -> list[FunctionModel]:
        pending: list[tuple[FunctionModel, ClassModel | None]] = []
        own = {cls for adapter in self.adapters for cls in adapter.mro}
        for adapter in self.adapters:
            pending += _methods(adapter)
        seen: dict[tuple[FunctionModel, ClassModel | None], None] = {}
        counted: set[ast.Call] = set()
        made: set[ClassModel] = set()
        while pending and len(seen) < _MOST:
            function, receiver = pending.pop(0)
            if (function, receiver) in seen or not _ours(function):
                continue
            seen[function, receiver] = None
            self._receivers.setdefault(function, receiver)
            for call in function.calls:
                found = resolve(function.file, call, receiver)
                if receiver is self._receivers[function]:
                    self._called[call] = found if isinstance(found, FunctionModel) else None
                if isinstance(found, ClassModel):
                    if found not in made and not _is_module(found):
                        made.add(found)
                        pending += _methods(found)
                    start = found.method("__init__")
                    if start is not None and call not in counted:
                        counted.add(call)
                        self.callers.setdefault(start, []).append((function, call))
                elif found is not None and (found.cls is None or found.cls in own or not _is_module(found.cls)):
                    if call not in counted:
                        counted.add(call)
                        self.callers.setdefault(found, []).append((function, call))
                    bound = receiver if receiver is not None and found.cls in receiver.mro else found.cls
                    pending.append((found, bound))
        return list(dict.fromkeys(function for function, _ in seen))


def _methods(cls: ClassModel) -> list[tuple[FunctionModel, ClassModel | None]]:
    names = dict.fromkeys(name for owner in cls.mro for name in owner.methods)
    return [(method, cls) for name in names if (method := cls.method(name)) is not None]


def _ours(function: FunctionModel) -> bool:
    return (
        function.file.path.startswith(f"{PIPELINES}/")
        and "/" in function.file.path[len(PIPELINES) + 1 :]
        and (not function.file.path.startswith(f"{PIPELINES}/schedulers/"))
    )


def _is_module(cls: ClassModel) -> bool:
    return bool(cls.derives_from("torch.nn.Module", "nn.Module", "NonDiffusersModelBase"))


@lru_cache(maxsize=64)
def side_of(package: Package, which: Which) -> Side:
    """Return one side of a package."""
    return Side(package.training_adapters if which == "training" else package.rollout_adapters)
