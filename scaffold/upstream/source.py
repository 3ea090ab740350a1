"""One version of vllm-omni's source, read in place from a folder, an installed distribution or a wheel."""

from __future__ import annotations

import ast
import io
import zipfile
from abc import ABC, abstractmethod
from bisect import bisect_left
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.parsing import parse
from scaffold.files.reading import RefusedFileError, copy_tree, open_file, read_bytes, walk
from scaffold.limits.bounded import memory

PACKAGE = "vllm_omni"
MAX_FILE_BYTES = 8 * 1024 * 1024
"""Size limit in bytes: larger files are not hand-written source and are refused."""


class UpstreamSource(ABC):
    """Text of the files below the folder that holds ``vllm_omni/``.

    Paths are POSIX and relative to that folder. Nothing is imported, unpacked or written.

    Attributes:
        digest: SHA-256 of a fetched release's wheel; None for other sources, which may change.
        packages: the packages that are read: ``vllm_omni``, and that of a pipeline outside it.
    """

    digest: str | None = None
    packages: tuple[str, ...] = (PACKAGE,)

    def __init__(self, version: str | None, label: str) -> None:
        self.version = version
        self.label = label
        self._trees: dict[str, ast.Module] = {}
        self._texts: dict[str, str] = {}

    def read(self, path: str) -> str:
        """Return the file's text.

        Raises:
            ScaffoldError: the file is not there, too large, or not UTF-8.
        """
        text = self._texts.get(path)
        if text is None:
            data = self._bytes(self._checked(path))
            try:
                text = data.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise ScaffoldError(f"{path} in vllm-omni {self.label} is not UTF-8 at byte {error.start}") from None
            self._texts[path] = text
        return text

    def tree(self, path: str) -> ast.Module:
        """Return the file's syntax tree, parsed once.

        Raises:
            ScaffoldError: as ``read``, or the text is not Python.
        """
        tree = self._trees.get(path)
        if tree is None:
            try:
                tree = parse(self.read(path), path)
            except (SyntaxError, ValueError, RecursionError) as error:
                line = getattr(error, "lineno", None) or 1
                raise ScaffoldError(f"{path}:{line} in vllm-omni {self.label} is not valid Python: {error}") from None
            except MemoryError:
                what = f"is nested too deeply, or too large for {memory()}"
                raise ScaffoldError(f"{path} in vllm-omni {self.label} {what}") from None
            self._trees[path] = tree
        return tree

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return whether ``path`` is a file of this version."""

    @abstractmethod
    def files(self, prefix: str = "") -> list[str]:
        """Return the sorted paths of all Python files that start with ``prefix``."""

    def copy(self, package: str, into: Path) -> None:
        """Copy all files of a package into a folder.

        Raises:
            OSError: one cannot be read or written.
            ScaffoldError: this source keeps no files.
        """
        raise ScaffoldError(f"{package} of vllm-omni {self.label} cannot be kept")

    @abstractmethod
    def _bytes(self, path: str) -> bytes: ...

    def _missing(self, path: str) -> ScaffoldError:
        return ScaffoldError(f"vllm-omni {self.label} has no {path}")

    @staticmethod
    def _checked(path: str) -> str:
        if not path.strip("./") or path.startswith("/") or ".." in path.split("/"):
            raise ScaffoldError(f"{path!r} is not a path below the source folder")
        return path


class FolderSource(UpstreamSource):
    """A folder that holds ``vllm_omni/``: a checkout, or the site-packages of an installation.

    Args:
        root: the folder.
        version: its version, if known.
        label: its name for the user.
        linked: whether files may be links to outside the folder, as some installers create them.
    """

    def __init__(self, root: Path, version: str | None, label: str, *, linked: bool = False) -> None:
        super().__init__(version, label)
        self._root = root
        self._inside = None if linked else root

    def exists(self, path: str) -> bool:
        return (self._root / self._checked(path)).is_file()

    def files(self, prefix: str = "") -> list[str]:
        folder = self._root / (prefix.rpartition("/")[0] or PACKAGE)
        files = (Path(place, name) for place, _, names in walk(folder, inside=self._inside) for name in names)
        found = (file.relative_to(self._root).as_posix() for file in files if file.suffix == ".py")
        return sorted(path for path in found if path.startswith(prefix))

    def copy(self, package: str, into: Path) -> None:
        copy_tree(self._root / package, into / package, inside=self._inside, skip=("__pycache__", ".git"))

    def _bytes(self, path: str) -> bytes:
        try:
            return read_bytes(self._root / path, MAX_FILE_BYTES, inside=self._inside)
        except RefusedFileError as error:
            raise ScaffoldError(f"{path} in vllm-omni {self.label} {error.strerror}") from None
        except OSError:
            raise self._missing(path) from None


class WheelSource(UpstreamSource):
    """A wheel, read in place."""

    def __init__(self, wheel: Path, version: str | None, label: str) -> None:
        super().__init__(version, label)
        try:
            self._zip = zipfile.ZipFile(io.BufferedReader(open_file(wheel)))
        except (OSError, zipfile.BadZipFile, ValueError) as error:
            raise ScaffoldError(f"{wheel.name} is not a readable wheel: {error}") from None

    @cached_property
    def _python(self) -> list[str]:
        return sorted(name for name in self._zip.NameToInfo if name.endswith(".py"))

    def exists(self, path: str) -> bool:
        return self._checked(path) in self._zip.NameToInfo

    def files(self, prefix: str = "") -> list[str]:
        start = prefix or f"{PACKAGE}/"
        first = bisect_left(self._python, start)
        return list(takewhile(lambda name: name.startswith(start), self._python[first:]))

    def copy(self, package: str, into: Path) -> None:
        for info in self._zip.infolist():
            if info.filename.startswith(f"{package}/") and not info.is_dir():
                path = into / self._checked(info.filename)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._bytes(info.filename))

    def _bytes(self, path: str) -> bytes:
        member = self._zip.NameToInfo.get(path)
        if member is None:
            raise self._missing(path)
        if member.file_size > MAX_FILE_BYTES:
            raise ScaffoldError(f"{path} in vllm-omni {self.label} is larger than {MAX_FILE_BYTES} bytes")
        try:
            with self._zip.open(member) as stream:
                # The size in the archive's directory may be false: never read more than the limit.
                data = stream.read(MAX_FILE_BYTES + 1)
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
            raise ScaffoldError(f"{path} in vllm-omni {self.label} cannot be read: {error}") from None
        except Exception as error:
            # zlib raises its own error type for a damaged stream.
            raise ScaffoldError(f"{path} in vllm-omni {self.label} is damaged: {error}") from None
        if len(data) > MAX_FILE_BYTES:
            raise ScaffoldError(f"{path} in vllm-omni {self.label} is larger than {MAX_FILE_BYTES} bytes")
        return data
