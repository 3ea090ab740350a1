"""Rendered TOML parses."""

from __future__ import annotations

from collections.abc import Mapping

import tomli

from scaffold.errors import ScaffoldError
from scaffold.render.rendered import RenderedFile

SUFFIXES = (".toml",)


def finish(files: Mapping[str, RenderedFile], notes: list[str]) -> Mapping[str, RenderedFile]:
    """Return the files unchanged; raise `ScaffoldError` for the first that does not parse."""
    for file in files.values():
        try:
            tomli.loads(file.content)
        except ValueError as error:
            raise ScaffoldError(f"template {file.template}: its output is not TOML: {error}") from error
    return files
