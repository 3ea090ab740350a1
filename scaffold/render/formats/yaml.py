"""Rendered YAML parses."""

from __future__ import annotations

from collections.abc import Mapping

from scaffold.errors import ScaffoldError
from scaffold.render.rendered import RenderedFile

SUFFIXES = (".yaml", ".yml")


def finish(files: Mapping[str, RenderedFile], notes: list[str]) -> Mapping[str, RenderedFile]:
    """Return the files unchanged; raise `ScaffoldError` for the first that does not parse."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for file in files.values():
        try:
            for _ in yaml.load_all(file.content, Loader=loader):
                pass
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1} of its output" if mark is not None else ""
            problem = getattr(error, "problem", None) or str(error)
            raise ScaffoldError(f"template {file.template}{line}: not YAML: {problem}") from error
    return files
