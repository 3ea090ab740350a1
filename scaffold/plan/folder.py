"""A folder whose files are reached without ever following a symbolic link inside it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_bytes
from scaffold.plan.change import FileState

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)


def contained(path: str) -> str:
    """Return ``path`` when it is relative, normal and stays inside; raise `ScaffoldError` otherwise."""
    parts = path.split("/")
    foreign = any(part in ("", ".", "..") or _is_git(part) for part in parts)
    if foreign or "\0" in path or "\\" in path:
        raise ScaffoldError(f"the path {path!r} does not stay inside the tree")
    return path


def _is_git(part: str) -> bool:
    """Whether a name is that of git's folder, on any file system."""
    return part.lower() in (".git", "git~1")


class Folder:
    """An open folder. Parents of every path are opened one by one, and a link among them is refused."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            self.descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ScaffoldError(f"{root}: cannot be opened as a folder: {error.strerror}") from error

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield the descriptor of the folder of ``path`` and the last component.

        Raises:
            FileNotFoundError: the folder is not there.
            ScaffoldError: the path leaves the tree or a component is a link or a file.
        """
        *parents, name = contained(path).split("/")
        descriptor = os.dup(self.descriptor)
        try:
            for depth, part in enumerate(parents):
                try:
                    following = os.open(part, _DIRECTORY, dir_fd=descriptor)
                except OSError as error:
                    if error.errno not in _NO_FOLDER:
                        raise
                    there = "/".join(parents[: depth + 1])
                    raise ScaffoldError(f"{path}: {there} is a link or a file, not a folder of the tree") from error
                os.close(descriptor)
                descriptor = following
            yield descriptor, name
        finally:
            os.close(descriptor)

    def state(self, path: str) -> FileState | None:
        """Return what is at ``path``, or None for nothing.

        Raises:
            ScaffoldError: it is neither file nor link, cannot be read, or a parent is a link.
        """
        try:
            with self.parent(path) as (folder, name):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    return FileState(os.fsencode(os.readlink(name, dir_fd=folder)), link=True)
                if not stat.S_ISREG(status.st_mode):
                    raise ScaffoldError(f"{path}: is there and is not a file")
                return FileState(read_bytes(name, dir_fd=folder), executable=bool(status.st_mode & stat.S_IXUSR))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ScaffoldError(f"{path}: cannot be read: {error.strerror}") from error

    def missing_parents(self, path: str) -> list[str]:
        """Return the folders above ``path`` that are not there, outermost first."""
        parts = PurePosixPath(path).parts
        for depth in range(1, len(parts)):
            try:
                with self.parent("/".join(parts[: depth + 1])):
                    pass
            except FileNotFoundError:
                return ["/".join(parts[:end]) for end in range(depth, len(parts))]
        return []
