"""The record of a commit in progress; `journal_place` says where it is kept."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_bytes
from scaffold.plan.change import PlannedChange
from scaffold.plan.folder import Folder, contained

NAME = "omni-scaffold-journal"


def journal_place(root: Path) -> tuple[Path, str]:
    """Return the folder and the name of the journal of the existing folder ``root``; nothing is created.

    The folder is the user's private state folder, which may not exist yet. Git's own folder would not do: it can be
    part of an archive.

    Raises:
        ScaffoldError: no private folder is available.
    """
    # Machines that share a home may have different folders at this path.
    return _private_folder(), f"{NAME}-{_path_digest(f'{os.path.realpath(root)}:{root.stat().st_ino}')}.json"


def _path_digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]


def _private_folder() -> Path:
    """Return the first folder that belongs to the user alone, or can be created."""
    for folder in _candidates():
        with suppress(OSError):
            if _belongs_to_user(folder):
                return folder
    raise ScaffoldError("there is no folder for the record of what is written", hint="set XDG_STATE_HOME to one")


def _belongs_to_user(folder: Path) -> bool:
    if not os.path.lexists(folder):
        above = next(parent for parent in folder.parents if parent.exists())
        return above.is_dir() and os.access(above, os.W_OK | os.X_OK)
    status = folder.lstat()
    mine = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and mine and os.access(folder, os.W_OK | os.X_OK)


def _candidates() -> list[Path]:
    state, home = os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~")  # noqa: PTH111  # needs no home
    found = [Path(state, "omni-scaffold")] if Path(state).is_absolute() else []
    if Path(home).is_absolute():
        inner = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
        found.append(Path(home, inner, "omni-scaffold"))
    return [*found, Path(tempfile.gettempdir(), f"omni-scaffold-{os.geteuid()}").absolute()]


MARK = "omni-scaffold"

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC

State = Literal["staging", "replacing", "done"]


@dataclass(frozen=True)
class Entry:
    """One path of a commit: digests of what it held and shall hold, None for nothing."""

    path: str
    before: str | None
    after: str | None

    @classmethod
    def of(cls, change: PlannedChange) -> Entry:
        """Return the entry of a planned change."""
        digests = (change.before.digest if change.before else None, change.after.digest if change.after else None)
        return cls(change.path, *digests)

    @property
    def temporary(self) -> str:
        """Path of the sibling that holds the new content."""
        return self._sibling("new")

    @property
    def backup(self) -> str:
        """Path of the sibling that holds the old content."""
        return self._sibling("old")

    def _sibling(self, suffix: str) -> str:
        folder, slash, name = self.path.rpartition("/")
        return f"{folder}{slash}.{name}.{MARK}-{suffix}"


@dataclass
class Journal:
    """What a commit makes: folders, outermost first, and one entry per path; ``emptied`` are folders to take away."""

    folders: Sequence[str]
    entries: Sequence[Entry]
    state: State = "staging"
    emptied: Sequence[str] = ()


class JournalFile:
    """The journal of a folder on disk, found once.

    Attributes:
        path: where it stands.
    """

    def __init__(self, folder: Folder) -> None:
        place, self._name = journal_place(folder.root)
        self.path = place / self._name
        self._temporary = f".{self._name}.tmp"
        self._root = folder.root

    @contextmanager
    def _place(self) -> Iterator[int]:
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def write(self, journal: Journal, state: State) -> None:
        """Put a journal on disk in the given state."""
        entries = [{"path": e.path, "before": e.before, "after": e.after} for e in journal.entries]
        lists = {"folders": list(journal.folders), "entries": entries, "emptied": list(journal.emptied)}
        text = json.dumps({"schema": 1, "state": state, **lists})
        if not self.path.parent.is_dir():
            self.path.parent.mkdir(mode=0o700, parents=True)
        with self._place() as place:
            with os.fdopen(os.open(self._temporary, _WRITE, 0o600, dir_fd=place), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._temporary, self._name, src_dir_fd=place, dst_dir_fd=place)
            os.fsync(place)
            journal.state = state

    def is_there(self) -> bool:
        """Whether a journal, or the beginning of one, is there."""
        return os.path.lexists(self.path) or os.path.lexists(self.path.with_name(self._temporary))

    def read(self) -> Journal | None:
        """Return the journal that an interrupted run left, or None.

        Raises:
            ScaffoldError: it is not a journal.
        """
        try:
            with self._place() as place:
                raw = read_bytes(self._name, dir_fd=place)
        except FileNotFoundError:
            return None
        try:
            data = json.loads(raw.decode("utf-8"))
            entries = [Entry(_path(e["path"]), _digest(e["before"]), _digest(e["after"])) for e in data["entries"]]
            folders = [_path(path) for path in data["folders"]]
            emptied = [_path(path) for path in data.get("emptied", [])]
            state: State = data["state"]
            if data["schema"] != 1 or state not in ("staging", "replacing", "done"):
                raise ValueError("unknown state")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ScaffoldError) as error:
            hint = "undo what it lists by hand and delete it"
            raise ScaffoldError(f"{self._root}: the journal {self.path} is damaged", hint=hint) from error
        return Journal(folders, entries, state, emptied)

    def remove(self) -> None:
        """Delete the journal, the last step of every commit."""
        if not self.is_there():
            return
        with self._place() as place:
            for name in (self._temporary, self._name):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=place)
                    os.fsync(place)


def _path(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a path is not text")
    os.fsencode(value)  # a lone surrogate is none either
    return contained(value)


def _digest(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("a digest is not text")
    return value
