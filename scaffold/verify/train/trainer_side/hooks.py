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
from types import ModuleType, SimpleNamespace
from typing import Any

Hook = Callable[[ModuleType], None]


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
    """The modules of ``patches`` or of ``observers``, or the one in a file of its own, named by its path."""
    found: list[Any] = []
    for room in rooms:
        if room.endswith(".py"):
            found.append(SimpleNamespace(**runpy.run_path(room)))
            continue
        module = importlib.import_module(f"scaffold.verify.train.trainer_side.{room}")
        names = [entry.name for entry in pkgutil.iter_modules(getattr(module, "__path__", []))]
        found += [importlib.import_module(f"{module.__name__}.{name}") for name in names] or [module]
    return found


def install(rooms: Sequence[str]) -> None:
    """Arm every part of the rooms: ``prepare()`` now, ``HOOKS`` when their modules are imported.

    What ``hooks()`` of a part returns depends on variables of the run. A second call, in a fork that has got others,
    arms that alone, and for modules that are imported already at once.
    """
    found = parts(rooms)
    of_run: dict[str, list[Hook]] = {}
    for part in found:
        for name, hook in getattr(part, "hooks", dict)().items():
            of_run.setdefault(name, []).append(hook)
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            for name in list(sys.modules):
                for hook in [each for wanted, hooks in of_run.items() if _covers(wanted, name) for each in hooks]:
                    hook(sys.modules[name])
            finder.add(of_run)
            return
    armed = _Finder(of_run)
    for part in found:
        getattr(part, "prepare", lambda: None)()
        armed.add({name: [hook] for name, hook in getattr(part, "HOOKS", {}).items()})
    sys.meta_path.insert(0, armed)
