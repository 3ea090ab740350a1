"""The runtime that rendered packages share: one small package beside them, ordinary Python of this repository."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_text
from scaffold.files.resources import RUNTIME as NAME
from scaffold.files.resources import runtime_root, templates_root
from scaffold.render.rendered import RenderedFile

FOLDER = f"verl_omni/pipelines/{NAME}"
_VERSION = re.compile(r"^VERSION = (\d{1,9})$", re.MULTILINE)


def is_runtime(path: str) -> bool:
    """Whether a path from the repository's root is one of the runtime's, of whatever version."""
    return path.startswith(f"{FOLDER}/") and path.endswith(".py") and path.count("/") == FOLDER.count("/") + 1


@cache
def runtime_files() -> dict[str, RenderedFile]:
    """Return the runtime's files by path from the repository's root, as the target wants them."""
    from scaffold.render.formats import finish

    header = read_text(templates_root() / "blocks" / "license.py.jinja").strip()
    files = {
        f"{FOLDER}/{path.name}": RenderedFile(f"{header}\n{read_text(path)}", template=path.name)
        for path in sorted(runtime_root().glob("*.py"))
    }
    return finish(files, [])


def with_runtime(files: dict[str, RenderedFile]) -> dict[str, RenderedFile]:
    """Add the runtime to the files of a package that uses it."""
    uses = any(NAME in file.content for path, file in files.items() if path.endswith(".py"))
    return {**files, **runtime_files()} if uses else files


def refuse_newer(root: Path) -> None:
    """An older tool would carry its older runtime into a tree whose packages rest on a newer one.

    Raises:
        ScaffoldError: the runtime below ``root`` is newer than the tool's.
    """
    there, ours = version_of(root / FOLDER), version_of(runtime_root())
    if there is not None and ours is not None and there > ours:
        raise ScaffoldError(
            f"{FOLDER} is version {there}, this omni-scaffold brings version {ours}",
            hint="install the omni-scaffold that wrote it, or a newer one",
        )


def version_of(folder: Path) -> int | None:
    """Return the version of the runtime in a folder; None where there is none."""
    try:
        found = _VERSION.search(read_text(folder / "__init__.py"))
    except (OSError, ValueError, ScaffoldError):
        return None
    return int(found[1]) if found else None
