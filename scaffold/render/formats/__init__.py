"""What each kind of file must be before it may be written: one module per format, found by walking this folder.

A module has ``SUFFIXES: tuple[str, ...]`` and ``finish(files, notes)``, which takes all rendered files of that
format at once, returns them formatted, and raises `ScaffoldError` naming the template where one does not parse;
what could not be checked on this machine is appended to ``notes``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from scaffold.render.rendered import RenderedFile


def finish(files: Mapping[str, RenderedFile], notes: list[str]) -> dict[str, RenderedFile]:
    """Format and parse all files; those of unknown kinds and links pass as they are."""
    finished = dict(files)
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        mine = {p: f for p, f in files.items() if f.link_to is None and p.endswith(module.SUFFIXES)}
        if mine:
            finished.update(module.finish(mine, notes))
    return finished
