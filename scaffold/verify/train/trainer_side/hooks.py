"""Runs a function on a module right after it was imported, in whichever process imports it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pkgutil
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeVar

Hook = Callable[[ModuleType], None]
Hooks = dict[str, Hook]
Marked = TypeVar("Marked", bound=Callable[..., Any])


def after(*modules: str, places: Mapping[str, Sequence[str]] | None = None) -> Callable[[Marked], Marked]:
    """Have a function called with each of these modules when that was imported; ``places`` are what it works around."""
    return lambda function: _marked(function, after=modules, places=places or {})


def at_start(function: Marked) -> Marked:
    """Have a function called when the process starts."""
    return _marked(function, at_start=True)


def of_run(function: Callable[[], Hooks]) -> Callable[[], Hooks]:
    """Have a function called for hooks, by module, that depend on variables of the run."""
    return _marked(function, of_run=True)


def _marked(function: Marked, **marks: Any) -> Marked:
    vars(function).update(marks)
    return function


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a module as usual and adds its hooks to the end of its execution."""

    def __init__(self, hooks: dict[str, list[Hook]]) -> None:
        self.hooks = hooks
        self.busy: set[str] = set()

    def add(self, hooks: Mapping[str, Sequence[Hook]]) -> None:
        """Add hooks to those of their modules."""
        for name, more in hooks.items():
            self.hooks[name] = [*self.hooks.get(name, ()), *more]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        wanted = [hook for name, hooks in self.hooks.items() if _covers(name, fullname) for hook in hooks]
        if not wanted or fullname in self.busy:
            return None
        self.busy.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.busy.discard(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for hook in wanted:
                hook(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _covers(name: str, fullname: str) -> bool:
    """``name`` is a module, or ``package.*`` for a package and all below it."""
    return fullname == name or (name.endswith(".*") and f"{fullname}.".startswith(name[:-1]))


def parts(rooms: Sequence[str]) -> list[Any]:
    """The modules of ``patches``, ``observers``, or the one in a file of its own, named by its path."""
    found: list[Any] = []
    for room in rooms:
        if room.endswith(".py"):
            found.append(SimpleNamespace(**runpy.run_path(room)))
            continue
        module = importlib.import_module(f"scaffold.verify.train.trainer_side.{room}")
        names = [entry.name for entry in pkgutil.iter_modules(getattr(module, "__path__", []))]
        found += [importlib.import_module(f"{module.__name__}.{name}") for name in names] or [module]
    return found


def marked(rooms: Sequence[str]) -> list[Any]:
    """The functions of the rooms that say when they act, in the order in which they stand."""
    found = [value for part in parts(rooms) for value in vars(part).values() if isinstance(value, FunctionType)]
    return [function for function in found if vars(function).keys() & {"after", "at_start", "of_run"}]


def install(rooms: Sequence[str]) -> None:
    """Arm every function of the rooms: some act now, others when their modules are imported.

    What depends on variables of the run is looked up anew by a second call, in a fork that has got others: it arms that
    alone, and for modules that are imported already at once.
    """
    found = marked(rooms)
    of_run: dict[str, list[Hook]] = {}
    for function in found:
        for name, hook in function().items() if hasattr(function, "of_run") else ():
            of_run.setdefault(name, []).append(hook)
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            for name in list(sys.modules):
                for hook in [each for wanted, hooks in of_run.items() if _covers(wanted, name) for each in hooks]:
                    hook(sys.modules[name])
            finder.add(of_run)
            return
    armed = _Finder(of_run)
    for function in found:
        if hasattr(function, "at_start"):
            function()
        for name in getattr(function, "after", ()):
            armed.add({name: [function]})
    sys.meta_path.insert(0, armed)
