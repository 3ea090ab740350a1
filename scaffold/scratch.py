"""Temporary folders that do not outlive the process for long: what a killed one left, the next one takes away."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "omni-scaffold."
KEPT = ".kept"
"""A file in a folder that its maker has left for a person to look at."""

_tidied: set[str] = set()


@contextmanager
def scratch_folder(kind: str, place: Path | None = None) -> Iterator[Path]:
    """A folder of the user's own that is gone after the block, unless `keep` was called for it.

    It is locked for as long as this process, or a child that has inherited the lock, lives; the first folder that a
    process makes in a place takes those away that nobody holds any more.

    Args:
        kind: what it is for, a part of its name.
        place: the folder it is made in; that for temporary files by default.

    Raises:
        OSError: it cannot be made.
    """
    above = str(place or tempfile.gettempdir())
    if above not in _tidied:
        _tidied.add(above)
        tidy(Path(above))
    folder, lock = _made(kind, above)
    try:
        yield folder
    finally:
        if not (folder / KEPT).exists():
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def keep(folder: Path) -> None:
    """Leave a folder of `scratch_folder` where it is, for good."""
    (folder / KEPT).touch()


def tidy(place: Path) -> None:
    """Remove folders of ours in ``place`` whose makers have ended without doing so."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.startswith(PREFIX) and _is_ours(entry.stat(follow_symlinks=False)):
                    _remove_unheld(Path(entry.path))


def _is_ours(status: os.stat_result) -> bool:
    """Whether it is a folder as ``mkdtemp`` makes one: the user's, and nobody else may look into it."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700


def _remove_unheld(folder: Path) -> None:
    descriptor = _opened(folder)
    try:
        if _lock(descriptor) and not (folder / KEPT).exists():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _made(kind: str, above: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=above))
        with suppress(FileNotFoundError):  # another process has taken it for one that nobody holds
            descriptor = _opened(folder)
            if _lock(descriptor) is not False and folder.exists():
                return folder, descriptor
            os.close(descriptor)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _lock(descriptor: int) -> bool | None:
    """True where the lock was free and is held now, False where another process has it, None where there are none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
