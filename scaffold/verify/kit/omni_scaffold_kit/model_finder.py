"""Makes every ``vllm_omni.diffusion.models.<folder>.<module>`` importable; its classes are stand-in pipelines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from .stand_in_pipeline import stand_in_class

_MODELS = "vllm_omni.diffusion.models."


def _is_class_name(name: str) -> bool:
    """Whether ``name`` is written as classes are: ``FooPipeline``, not ``FOO``, ``foo`` or ``_Foo``."""
    return name.isidentifier() and name[0].isupper() and (len(name) == 1 or not name.isupper())


class ModelModule(ModuleType):
    """A module that has every class asked of it, the same object each time."""

    def __getattr__(self, name: str) -> object:
        if not _is_class_name(name):
            raise AttributeError(f"the contract kit's {self.__name__} stands in for classes only and has no {name!r}")
        value = stand_in_class(name, self.__name__)
        setattr(self, name, value)
        return value


class ModelFinder(MetaPathFinder, Loader):
    """Finder and loader of :class:`ModelModule`; real files, found by the finders before it, win."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_MODELS):
            return None
        return ModuleSpec(fullname, self, origin="omni-scaffold contract kit", is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModelModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: attributes are made when they are asked for."""


def install() -> None:
    """Append the finder to ``sys.meta_path`` unless it is there."""
    if not any(isinstance(finder, ModelFinder) for finder in sys.meta_path):
        sys.meta_path.append(ModelFinder())
