"""The checked folder, on disk or in memory: names, bytes, links."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from scaffold.files.reading import LARGEST, read_bytes, walk

SKIPPED = {"__pycache__", "node_modules"}
MOST_FILES = 50_000


class UnreadableError(Exception):
    """A file is there but cannot be read."""


class Tree(Protocol):
    """Files by POSIX path below a root."""

    def files(self, folder: str) -> list[str]:
        """Return the files below a folder at any depth, links among them, sorted."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder; links are followed."""

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, None where there is no such file.

        Raises:
            UnreadableError: it is not a regular file, too large, or may not be read.
        """

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link, None where the path is none."""

    def locate(self, path: str) -> Path | None:
        """Return where a file lies on disk; None in memory."""


class DiskTree:
    """A folder on disk.

    Args:
        root: its resolved path.
        mounts: path below the tree -> folder on disk, for a package that lies outside of any checkout.
        only: whether the tree has nothing but the mounts.
        changed: resolved path of a file -> bytes that take the place of what is on disk.
    """

    def __init__(
        self,
        root: Path,
        mounts: Mapping[str, Path] | None = None,
        changed: Mapping[Path, bytes] | None = None,
        *,
        only: bool = True,
    ) -> None:
        self.root, self._only = root, only
        self._mounts, self._changed = dict(mounts or {}), changed or {}

    def locate(self, path: str) -> Path | None:
        """Return where a file lies on disk, or would lie; None outside of the mounts of a tree that has only those."""
        for prefix, folder in self._mounts.items():
            if path == prefix or path.startswith(prefix + "/"):
                return folder / path[len(prefix) + 1 :]
        return None if self._mounts and self._only else self.root / path

    def files(self, folder: str) -> list[str]:
        """Return the files below a folder; links to folders are not followed."""
        below = [mount for mount in self._mounts if folder == "" or mount.startswith(folder + "/")]
        found = sorted(path for mount in below for path in self.files(mount))
        return found if below and self._only else sorted([*found, *self._below(folder)])

    def _below(self, folder: str) -> list[str]:
        top = self.locate(folder)
        if top is None or not top.is_dir():
            return []
        found: list[str] = []
        for place, folders, names in walk(top):
            folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
            below = Path(place).relative_to(top).as_posix()
            prefix = folder if below == "." else f"{folder}/{below}" if folder else below
            found += [f"{prefix}/{name}" if prefix else name for name in names if not name.startswith(".")]
            if len(found) > MOST_FILES:
                break
        return found

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        place = self.locate(path)
        try:
            return place is not None and place.exists()
        except OSError:
            return False

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes."""
        place = self.locate(path)
        if place is None:
            return None
        if self._changed and place.resolve() in self._changed:
            return self._changed[place.resolve()]
        try:
            return read_bytes(place, LARGEST, inside=self._inside(path))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise UnreadableError(error.strerror or str(error)) from error

    def _inside(self, path: str) -> Path:
        """The folder that a link on the way to a file has to stay in."""
        mounts = (folder for prefix, folder in self._mounts.items() if path.startswith(f"{prefix}/"))
        return next((folder for folder in mounts if not folder.is_relative_to(self.root)), self.root)

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link."""
        place = self.locate(path)
        try:
            return str(place.readlink()) if place is not None else None
        except OSError:
            return None


class MemoryTree:
    """Files in memory, for the examples of rules.

    Args:
        content: path -> text; a text that starts with ``-> `` is a link.
    """

    def __init__(self, content: Mapping[str, str | bytes]) -> None:
        self._content = dict(content)

    def locate(self, path: str) -> Path | None:
        """Return None: nothing lies on disk."""
        return None

    def files(self, folder: str) -> list[str]:
        """Return the files below a folder."""
        return sorted(path for path in self._content if not folder or path.startswith(folder + "/"))

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return path in self._content or any(name.startswith(path + "/") for name in self._content)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes."""
        content = self._content.get(path)
        return content.encode() if isinstance(content, str) else content

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link."""
        content = self._content.get(path)
        return content[3:].strip() if isinstance(content, str) and content.startswith("-> ") else None
