"""A checkpoint folder: its files, each checked to be inside it."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.checkpoint.layout import check_inside
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.files import reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import RawIOBase


@dataclass(frozen=True)
class Folder:
    """A folder opened for reading; ``shown`` is its path as the user wrote it.

    A file may be a symlink to another file of the folder, and in a snapshot of a Hub cache to the blobs of the same
    repository (``models--owner--name/snapshots/<revision>/`` and ``models--owner--name/blobs/``), nothing else.
    """

    shown: Path
    root: Path
    blobs: Path | None

    @classmethod
    def at(cls, location: Path) -> Folder:
        """Open the folder at ``location``, which may itself be a symlink."""
        root = location.resolve()
        blobs = None
        for parent in (root, *root.parents):
            if parent.parent.name == "snapshots" and parent.parent.parent.name.startswith("models--"):
                blobs = parent.parent.parent / "blobs"
                break
        return cls(location, root, blobs)

    def label(self, name: str) -> str:
        """Return how errors name a file."""
        return str(self.shown / name)

    def names(self, inside: str = "") -> list[str]:
        """Return the names of the entries directly in the folder or in a subfolder of it, sorted, hidden ones left out.

        Raises:
            ScaffoldError: it cannot be listed.
        """
        try:
            with os.scandir(self.root / inside) as entries:
                names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
        except OSError as error:
            raise ScaffoldError(f"cannot list {self.label(inside)}: {error.strerror}") from None
        return [f"{inside}/{name}" for name in names] if inside else names

    def subfolders(self) -> list[str]:
        """Return the names of the real folders directly in it, symlinks left out."""
        return [name for name in self.names() if (self.root / name).is_dir() and not (self.root / name).is_symlink()]

    def resolve(self, name: str, named_by: str | None = None) -> Path:
        """Return the real path of a file of this folder.

        Args:
            name: POSIX path relative to the folder.
            named_by: the file that names it, for errors.

        Raises:
            ScaffoldError: the path is absolute or has ``..``, leads out of the folder, or is not a regular file.
        """
        origin = f"{self.label(named_by)} names" if named_by else f"{self.shown} has"
        check_inside(name, origin)
        try:
            real = (self.root / name).resolve(strict=True)
            regular = stat.S_ISREG(real.stat().st_mode)
        except (OSError, RuntimeError, ValueError):
            raise ScaffoldError(f"{origin} the file {quoted(name)}, which is not there or cannot be reached") from None
        if not (real.is_relative_to(self.root) or (self.blobs and real.is_relative_to(self.blobs))):
            raise ScaffoldError(
                f"{origin} the file {quoted(name)}, a link that leaves the checkpoint folder",
                hint="give the folder that it leads to, or put a copy or a hard link in its place",
            )
        if not regular:
            raise ScaffoldError(f"{origin} {quoted(name)}, which is not a regular file")
        return real

    def read_small(self, name: str, limit: int) -> bytes:
        """Return a file's content.

        Raises:
            ScaffoldError: it is larger than ``limit`` bytes, lies outside the folder, or cannot be read.
        """
        with open_regular(self.resolve(name), self.label(name)) as (stream, size):
            raw = reading.read_up_to(stream, limit + 1) if size <= limit else b""
        if size > limit or len(raw) > limit:
            raise ScaffoldError(f"{self.label(name)} is larger than {limit} bytes")
        return raw


def opened_folder(location: Path) -> Path:
    """Return the checkpoint folder: for a repository in a Hub cache the snapshot of ``main``, else the given one.

    A Hub cache with a single repository stands for that repository.
    """
    held = sorted(location.glob("models--*/refs/main")) if location.is_dir() else []
    location = held[0].parents[1] if len(held) == 1 else location
    reference = location / "refs" / "main"
    if location.resolve().name.startswith("models--") and reference.is_file():
        revision = reading.read_text(reference, 200).strip()
        if revision.isalnum() and (location / "snapshots" / revision).is_dir():
            return location / "snapshots" / revision
    return location


@contextmanager
def open_regular(path: Path, label: str) -> Iterator[tuple[RawIOBase, int]]:
    """Open a regular file without buffering and return its size; never block on a pipe or device.

    Raises:
        ScaffoldError: it cannot be opened or read, or is not a regular file.
    """
    try:
        with reading.open_regular(path) as found:
            yield found
    except reading.RefusedFileError as error:
        raise ScaffoldError(f"{label} {error.strerror}") from None
    except OSError as error:
        raise ScaffoldError(f"cannot read {label}: {error.strerror or error}") from None
