"""Allows small images in a pipeline that rounds to the nearest size in a table of large ones."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from scaffold.verify.rollout.engine_side.sources import Adapters, loaded_modules


def allow(adapters: Adapters, table: dict[str, Any] | None, wanted: Iterable[tuple[int, int]]) -> None:
    """Replace sizes in the table that the pipeline chooses from.

    Args:
        table: ``module`` and ``constant`` under which the table stands, and its ``sizes`` as ``[height, width]``; None
            where the pipeline makes any size.
        wanted: height and width of each image to come.

    Raises:
        LookupError: the table is not the one that the package was made for.
    """
    if table is None:
        return
    found, small = replaced(importlib.import_module(table["module"]), table, wanted)
    for holder in loaded_modules(adapters.upstream_packages):
        if getattr(holder, table["constant"], None) is found:
            setattr(holder, table["constant"], small)


def replaced(module: Any, table: dict[str, Any], wanted: Iterable[tuple[int, int]]) -> tuple[Any, Any]:
    """The table of a module, and ``wanted`` in the order of height and width that it has.

    Raises:
        LookupError: the table is not the one that the package was made for.
    """
    found = getattr(module, table["constant"], ())
    sizes = [tuple(size) for size in table["sizes"]]
    known = list(map(tuple, found))
    if known not in (sizes, [size[::-1] for size in sizes]):
        raise LookupError(f"{table['module']}.{table['constant']} is not the table that scaffold.toml has")
    return found, tuple((h, w) if known == sizes else (w, h) for h, w in wanted)
