"""Rendered TOML parses."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

from scaffold.errors import ScaffoldError
from scaffold.render.rendered import RenderedFile

SUFFIXES = (".toml",)


def finish(files: Mapping[str, RenderedFile], notes: list[str]) -> Mapping[str, RenderedFile]:
    """Return the files unchanged; raise `ScaffoldError` for the first that does not parse."""
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    for file in files.values():
        try:
            tomllib.loads(file.content)
        except ValueError as error:
            raise ScaffoldError(f"template {file.template}: its output is not TOML: {error}") from error
    return files
