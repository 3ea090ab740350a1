"""The runtime that rendered packages share: a distribution, of which a checkout holds what its packages reach."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.layout import CHECKOUT
from scaffold.files.reading import read_text
from scaffold.files.resources import RUNTIME as NAME
from scaffold.files.resources import runtime_root, templates_root
from scaffold.files.runtime import local_in, version_in
from scaffold.render.rendered import RenderedFile

FOLDER = CHECKOUT.package_folder(NAME)
# ``from X.module import …`` and ``from X import module, …`` of the runtime: by its name in packages, by dots in itself.
_IMPORTS = re.compile(
    rf"^[ \t]*from[ \t]+(?:{re.escape(CHECKOUT.module(NAME))}(?:\.(?P<named>\w+))?|\.(?P<beside>\w*))[ \t]+import[ \t]+"
    r"(?:\((?P<several>[^)]*)\)|(?P<one>[^\n]*))",
    re.MULTILINE,
)

_RUN = re.compile(rf"python3 {re.escape(FOLDER)}/(\w+)\.py\b")


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
    """Add to the files of a package the modules of the runtime that it reaches, or that its scripts run."""
    every = runtime_files()
    waiting = list(_imported((file.content for path, file in files.items() if path.endswith(".py")), every))
    run = (name for path, file in files.items() if path.endswith(".sh") for name in _RUN.findall(file.content))
    waiting += [path for name in run if (path := f"{FOLDER}/{name}.py") in every]
    if not waiting:
        return files
    reached: dict[str, RenderedFile] = {}
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached[path] = every[path]
            waiting += _imported([every[path].content], every)
    return {**files, **reached}


def _imported(texts: Iterable[str], every: Mapping[str, RenderedFile]) -> Iterator[str]:
    """Yield the files of the runtime that texts import, the one of the package itself with each."""
    for text in texts:
        for found in _IMPORTS.finditer(text):
            module = found["named"] or found["beside"]
            names = [module] if module else re.findall(r"(\w+)(?:[ \t]+as[ \t]+\w+)?", found["several"] or found["one"])
            paths = [path for name in names if (path := f"{FOLDER}/{name}.py") in every]
            if paths:
                yield from (f"{FOLDER}/__init__.py", *paths)


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
    start = _start(folder)
    return version_in(start) if start is not None else None


def local_version_of(folder: Path) -> str | None:
    """Return the name that somebody gave to a runtime changed on purpose; None of a released one."""
    start = _start(folder)
    return local_in(start) if start is not None else None


def _start(folder: Path) -> str | None:
    try:
        return read_text(folder / "__init__.py")
    except (OSError, ValueError, ScaffoldError):
        return None
