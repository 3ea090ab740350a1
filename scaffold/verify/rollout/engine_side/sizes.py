"""Small images in a pipeline that takes the nearest size of a table of large ones."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from scaffold.verify.rollout.engine_side.sources import Adapters, loaded_modules


def allow(adapters: Adapters, table: dict[str, Any] | None, wanted: Iterable[tuple[int, int]]) -> list[str]:
    """Put other sizes into the table that the pipeline chooses from; returns the modules changed.

    Args:
        table: ``module`` and ``constant`` under which the table stands, and its ``sizes`` as ``[height, width]``; None
            where the pipeline makes any size.
        wanted: height and width of each image to come.

    Raises:
        LookupError: the table is not the one that the package was made for.
    """
    if table is None:
        return []
    module: Any = importlib.import_module(table["module"])
    found = getattr(module, table["constant"], None)
    sizes = [tuple(size) for size in table["sizes"]]
    turned = [(width, height) for height, width in sizes]
    if found is None or list(map(tuple, found)) not in (sizes, turned):
        raise LookupError(f"{table['module']}.{table['constant']} is not the table that scaffold.toml has")
    height_first = list(map(tuple, found)) == sizes
    small = tuple((h, w) if height_first else (w, h) for h, w in wanted)
    changed = []
    for holder in loaded_modules(adapters.upstream_packages):
        if getattr(holder, table["constant"], None) is found:
            setattr(holder, table["constant"], small)
            changed.append(holder.__name__)
    return changed
