"""Where the tool may write a file that somebody else names: below the folder that it made, nowhere else."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath


class OutsideError(ValueError):
    """A name leads out of the folder that it is to stand in."""


def is_relative(name: str) -> bool:
    """Whether a name, as text, leads to something below whatever folder it is joined to."""
    path = PurePosixPath(name)
    return not (
        path.is_absolute()
        or PureWindowsPath(name).drive
        or ".." in path.parts
        or not path.parts
        or "\\" in name
        or "\0" in name
    )


def below(folder: Path, name: str | os.PathLike[str]) -> Path:
    """Return where a name stands below a folder, which need not be there yet.

    Args:
        folder: one of the tool's own.
        name: a relative path, or one that begins with the folder; a link on its way may lead elsewhere in the folder.

    Raises:
        OutsideError: it leads elsewhere, as a path or through a link, has ``..``, or is the folder itself.
    """
    text = os.fspath(name)
    inner = os.path.relpath(text, folder) if Path(text).is_absolute() and ".." not in Path(text).parts else text
    try:
        real = (folder / inner).resolve() if is_relative(inner) else None
    except (OSError, RuntimeError):  # links in a circle
        real = None
    root = folder.resolve()
    if real is None or real == root or not real.is_relative_to(root):
        raise OutsideError(f"{text!r} leads out of the folder {folder}")
    return folder / inner


def is_below(folder: Path, name: str | os.PathLike[str]) -> bool:
    """Whether `below` takes the name."""
    try:
        below(folder, name)
    except OutsideError:
        return False
    return True
