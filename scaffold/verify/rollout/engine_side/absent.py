"""Stand-ins for libraries that vllm imports but does not run here, and the environment lacks: quantisation, sound."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from scaffold.verify.rollout.engine_side import sound

NAMES = ("compressed_tensors", "torchaudio")


class _Hollow(type):
    """A class whose attributes are strings, so that modules can build tables from them at import."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves modules in which every name is a class without content; last on the path, so a real one goes first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in NAMES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)

        def attribute(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return _Hollow(name, (), {})

        module.__getattr__ = attribute  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def stand_in() -> None:
    """Serve the libraries that are not installed; they can be imported but not run.

    Those that prepare sound do run, since a pipeline calls them with every request.
    """
    sys.meta_path.append(_Finder())
    sound.stand_in()
