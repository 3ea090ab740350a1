"""Makes every module that may hold a pipeline importable; its classes are stand-in pipelines.

Those are ``vllm_omni.diffusion.models.<folder>.<module>``, and modules of a pipeline's own package beside vllm-omni.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from .stand_in_pipeline import stand_in_class

_MODELS = "vllm_omni.diffusion.models."
_OWN: set[str] = set()


def _is_class_name(name: str) -> bool:
    """Whether ``name`` is written as classes are: ``FooPipeline``, not ``FOO``, ``foo`` or ``_Foo``."""
    return name.isidentifier() and name[0].isupper() and (len(name) == 1 or not name.isupper())


def _as_it_is(config: object) -> Callable[..., object]:
    """What the engine's registry names for a pipeline: here a request or a result stays as it is."""
    return lambda given, **_: given


class ModelModule(ModuleType):
    """A module with every class asked of it, and what prepares requests and finishes results; the same each time."""

    def __getattr__(self, name: str) -> object:
        value: object
        if name.startswith("get_") and name.endswith(("pre_process_func", "post_process_func")):
            value = _as_it_is
        elif _is_class_name(name):
            value = stand_in_class(name, self.__name__)
        else:
            raise AttributeError(f"the contract kit's {self.__name__} stands in for classes only and has no {name!r}")
        setattr(self, name, value)
        return value


class ModelFinder(MetaPathFinder, Loader):
    """Finder and loader of :class:`ModelModule`; real files, found by the finders before it, win."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_MODELS) and fullname.partition(".")[0] not in _OWN:
            return None
        return ModuleSpec(fullname, self, origin="omni-scaffold contract kit", is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModelModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: attributes are made when they are asked for."""


class OwnFinder(ModelFinder):
    """Finder of pipelines' own packages, which import vllm-omni: it goes before one that is installed without that."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return super().find_spec(fullname, path, target) if fullname.partition(".")[0] in _OWN else None


def install(*own: str) -> None:
    """Append the finder to ``sys.meta_path`` unless it is there; ``own`` are packages of pipelines beside vllm-omni."""
    _OWN.update(own)
    if own and not any(isinstance(finder, OwnFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, OwnFinder())
    if not any(type(finder) is ModelFinder for finder in sys.meta_path):
        sys.meta_path.append(ModelFinder())
