"""From spec values to the files of the target repository, formatted and parsed, all in memory."""

from __future__ import annotations

from scaffold.render.names import Names, derive_names
from scaffold.render.rendered import RenderedFile
from scaffold.render.tree import render

__all__ = ["Names", "RenderedFile", "derive_names", "render"]
