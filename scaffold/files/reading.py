"""The only way to read an untrusted file: a regular one, of bounded size, inside the tree it belongs to.

Reading never blocks on a pipe or a device. A refusal is an `OSError` with a `strerror` like any other.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import lru_cache
from io import BufferedReader, RawIOBase
from pathlib import Path, PurePosixPath, PureWindowsPath

from scaffold.errors import ScaffoldError

LARGEST = 20_000_000
"""Bytes of the largest file that is read whole, unless the reader knows better."""
LARGEST_TREE = 1_000_000_000
"""Bytes of all files of the largest folder that is copied."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_CHUNK = 1 << 16


class RefusedFileError(OSError):
    """The path exists but must not be read."""


def open_file(path: str | Path, *, inside: Path | None = None, dir_fd: int | None = None) -> RawIOBase:
    """Open a regular file without buffering; it is the caller's to close.

    Args:
        path: the file; a symbolic link is followed, except with ``dir_fd``.
        inside: the tree it belongs to; a link may lead elsewhere in it, not out of it.
        dir_fd: open folder that the path starts from.

    Raises:
        RefusedFileError: it is not a regular file, or a link that leads out of the tree.
        OSError: it cannot be opened.
    """
    flags = _FLAGS if dir_fd is None else _FLAGS | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags, dir_fd=dir_fd)
    except ValueError:  # NUL, or characters no file system can encode
        raise RefusedFileError(errno.EINVAL, "is not a path", str(path)) from None
    try:
        if inside is not None and not _real(descriptor, path).startswith(_real_folder(inside.absolute())):
            raise RefusedFileError(errno.ELOOP, "is a link that leads out of its tree", str(path))
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise RefusedFileError(errno.EINVAL, "is not a regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb", buffering=0)


def _real(descriptor: int, path: str | Path) -> str:
    """Return the resolved path of an open file, on Linux from its descriptor."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # for its speed
    except OSError:
        return os.path.realpath(path)


@lru_cache(maxsize=64)
def _real_folder(folder: Path) -> str:
    return os.path.realpath(folder).rstrip(os.sep) + os.sep


@contextmanager
def open_regular(
    path: str | Path, *, inside: Path | None = None, dir_fd: int | None = None
) -> Iterator[tuple[RawIOBase, int]]:
    """`open_file` for a block, which gets the size in bytes too."""
    with open_file(path, inside=inside, dir_fd=dir_fd) as stream:
        yield stream, os.fstat(stream.fileno()).st_size


def read_bytes(
    path: str | Path, limit: int = LARGEST, *, inside: Path | None = None, dir_fd: int | None = None
) -> bytes:
    """Return a file's bytes; the arguments are those of `open_file`, and ``limit`` the most bytes it may have.

    Raises:
        OSError: as `open_file`, or it is larger.
    """
    with open_regular(path, inside=inside, dir_fd=dir_fd) as (stream, size):
        raw = read_up_to(stream, limit + 1) if size <= limit else b""
    if size > limit or len(raw) > limit:
        raise RefusedFileError(errno.EFBIG, f"is larger than {limit} bytes", str(path))
    return raw


def read_text(path: str | Path, limit: int = LARGEST, *, inside: Path | None = None, errors: str = "strict") -> str:
    """Return a file's text, UTF-8, with every line end made ``\\n``, as `Path.read_text` does.

    Raises:
        OSError: as `read_bytes`.
        UnicodeDecodeError: it is not UTF-8 and ``errors`` is strict.
    """
    text = read_bytes(path, limit, inside=inside).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_tail(path: str | Path, count: int) -> bytes:
    """Return the last ``count`` bytes of a file of any size.

    Raises:
        OSError: as `open_file`.
    """
    with open_regular(path) as (stream, size):
        stream.seek(max(0, size - count))
        return read_up_to(stream, count)


def read_lines(path: str | Path, longest: int = 1 << 20) -> Iterator[str]:
    """Yield the lines of a file of any size, as UTF-8 with invalid bytes replaced; a very long line comes in parts.

    Raises:
        OSError: as `open_file`.
    """
    with BufferedReader(open_file(path)) as stream:
        while line := stream.readline(longest):
            yield line.decode("utf-8", errors="replace")


def read_up_to(stream: RawIOBase, count: int) -> bytes:
    """Read ``count`` bytes, fewer only where the file ends."""
    parts = []
    while count > 0:
        part = stream.read(min(count, _CHUNK))
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def expanded(path: str | Path) -> Path:
    """Return a path with ``~`` made the user's folder.

    Raises:
        ScaffoldError: it begins with the name of a user who is not there.
    """
    found = Path(os.path.expanduser(path))  # noqa: PTH111  # pathlib's raises an error of its own
    if found.parts[:1] and found.parts[0].startswith("~"):
        raise ScaffoldError(f"{path}: there is no home folder {found.parts[0]}", hint="write the path out")
    return found


def walk(folder: str | Path, *, inside: Path | None = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk` without following links to folders, on an untrusted folder that may itself be a link.

    Args:
        folder: where to begin.
        inside: the tree it belongs to.

    Raises:
        RefusedFileError: it is a link that leads out of the tree.
    """
    if inside is not None and not f"{os.path.realpath(folder)}{os.sep}".startswith(_real_folder(inside.absolute())):
        raise RefusedFileError(errno.ELOOP, "is a link that leads out of its tree", str(folder))
    yield from os.walk(folder)


def copy_tree(source: Path, target: Path, *, inside: Path | None = None, skip: Sequence[str] = ()) -> None:
    """Copy a folder into a new or existing one; the copy holds only folders and regular files.

    Later writes into it thus cannot leave it.

    Args:
        source: the folder.
        target: where the copies go; a file that is there is replaced.
        inside: the tree it belongs to, by default itself; links to files in it are copied as files.
        skip: patterns of names to omit.

    Raises:
        RefusedFileError: a pipe, a device, a link to a folder, one that leads out, or more than `LARGEST_TREE`.
        OSError: as reading and writing.
    """
    left = LARGEST_TREE
    for place, folders, files in os.walk(source, onerror=_raise):
        folders[:] = sorted(name for name in folders if not any(fnmatch(name, pattern) for pattern in skip))
        into = target / os.path.relpath(place, source)
        into.mkdir(parents=True, exist_ok=True)
        for name in folders:
            path = Path(place, name)
            if path.is_symlink():
                raise RefusedFileError(errno.ELOOP, "is a link to a folder", str(path))
        for name in sorted(files):
            if any(fnmatch(name, pattern) for pattern in skip):
                continue
            path = Path(place, name)
            with open_regular(path, inside=inside or source) as (stream, size), (into / name).open("wb") as copy:
                # The claimed size is checked first; the bytes read count.
                while size <= left and (chunk := stream.read(_CHUNK)):
                    copy.write(chunk)
                    left -= len(chunk)
                    size -= len(chunk)
                if size > left:
                    raise RefusedFileError(errno.EFBIG, "makes its folder too large to copy", str(path))
                os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(stream.fileno()).st_mode) | stat.S_IWUSR)


def _raise(error: OSError) -> None:
    raise error


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
