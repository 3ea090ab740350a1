"""Sizes of a denoiser that are constants of its pipeline's source: in a tiny run its class is built with small ones.

No configuration leads to them, so the class itself replaces them, on both sides: in the real pipeline and in the
package. Each side first has to ask for the very values that the package's builder asks for; the rest of what it asks
for stays its own. A file beside the tiny checkpoint holds them, for every process that loads it.

A pipeline that brings every reference image to an area that its source states has a small one here, too: a preset names
the function that it computes the sides with.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scaffold.files.documents import parse_json
from scaffold.files.reading import read_text

FILE = "replaced_sizes.json"
TITLE = "constants of the source, replaced"
_CLASSES, _SIZES, _EITHER, _ORIGINAL = "classes", "sizes", "either", "__with_constants__"
_AREAS = "areas"
AREA = 64 * 64  # pixels

Sizes = Mapping[str, tuple[Any, Any]]


class OtherSizesError(ValueError):
    """A side builds the denoiser with other sizes than the package does."""


def write(
    folder: Path,
    classes: Mapping[str, str],
    sizes: Sizes,
    *,
    either: bool = False,
    areas: Mapping[str, str] | None = None,
) -> None:
    """Keep them beside a checkpoint.

    Args:
        folder: the checkpoint.
        classes: name of the denoiser's class by its module, on each side.
        sizes: by the constructor's argument: the source's value and the small one.
        either: a class that is asked for other values, those of a configuration, is left with them.
        areas: by the pipeline's module, name of the function there whose first argument is an area in pixels.
    """
    content = {_CLASSES: dict(classes), _SIZES: {name: list(values) for name, values in sizes.items()}, _EITHER: either}
    content |= {_AREAS: dict(areas)} if areas else {}
    (folder / FILE).write_text(json.dumps(content), encoding="utf-8")


def replace_in(folder: Path, module: Any) -> None:
    """Let the class of a module be built with the small sizes of a checkpoint; nothing, where it has none."""
    found = _read(folder)
    if module.__name__ in found.get(_CLASSES, {}):
        build_small(getattr(module, found[_CLASSES][module.__name__]), found[_SIZES], either=bool(found.get(_EITHER)))
    name = found.get(_AREAS, {}).get(module.__name__)
    if name is not None and hasattr(module, name):  # what stands in for the engine has none
        bound_area(module, name)


def replace(folder: Path) -> None:
    """The same for every module that is imported."""
    for name in modules(folder):
        if name in sys.modules:
            replace_in(folder, sys.modules[name])


def modules(folder: Path) -> list[str]:
    """Modules that have such a class, or such a function."""
    found = _read(folder)
    return [*found.get(_CLASSES, {}), *found.get(_AREAS, {})]


def told(folder: Path) -> dict[str, str]:
    """The sizes that were replaced, as a report's environment has them; nothing where none were.

    The process that wrote the file has run the package's code, so anything may stand there.
    """
    try:
        found = _read(folder)
        sizes = {} if found.get(_EITHER) else found.get(_SIZES, {})
        words = [f"{name} {small} for {value}" for name, (value, small) in sizes.items()]
        words += [f"{name} at most {AREA} pixels" for name in found.get(_AREAS, {}).values()]
        return {TITLE: ", ".join(words)} if words else {}
    except (AttributeError, OSError, TypeError, ValueError):
        return {TITLE: f"{FILE} cannot be read"}


def build_small(owner: Any, sizes: Sizes, *, either: bool = False) -> None:
    """Let a class be built with small sizes where it is asked for those of its source.

    Args:
        owner: the class; its constructor is replaced, and once more if it was before.
        sizes: by the constructor's argument: the value that it has to be asked for, and the small one.
        either: where it is asked for another value, that stays.
    """
    original = getattr(owner.__init__, _ORIGINAL, owner.__init__)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def small(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name, (value, replaced) in sizes.items():
            asked = bound.arguments.get(name)
            if _plain(asked) != _plain(value):
                if either:
                    continue
                raise OtherSizesError(
                    f"{owner.__module__}.{owner.__qualname__} is built with {name}={asked!r},"
                    f" and by the package's builder with {value!r}"
                )
            bound.arguments[name] = tuple(replaced) if isinstance(asked, tuple) else replaced
        original(*bound.args, **bound.kwargs)

    setattr(small, _ORIGINAL, original)
    owner.__init__ = small


def bound_area(module: Any, name: str) -> None:
    """Let a function of a module compute sides of a small area, whatever area it is asked for."""
    function = getattr(module, name)
    original = getattr(function, _ORIGINAL, function)

    @functools.wraps(original)
    def small(area: float, *args: Any, **kwargs: Any) -> Any:
        return original(min(area, AREA), *args, **kwargs)

    setattr(small, _ORIGINAL, original)
    setattr(module, name, small)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _read(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    return dict(parse_json(read_text(path))) if path.is_file() else {}
