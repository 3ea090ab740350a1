"""The record of a commit in progress, kept in the checkout's git directory or, without one, in its root."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scaffold.errors import ScaffoldError
from scaffold.plan.change import PlannedChange
from scaffold.plan.folder import Folder, contained

NAME = "omni-scaffold-journal.json"
MARK = "omni-scaffold"

_TEMPORARY = f".{NAME}.tmp"

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

    def write(self, folder: Folder, state: State) -> None:
        """Put the journal on disk in the given state."""
        entries = [{"path": e.path, "before": e.before, "after": e.after} for e in self.entries]
        lists = {"folders": list(self.folders), "entries": entries, "emptied": list(self.emptied)}
        text = json.dumps({"schema": 1, "state": state, **lists})
        place = _open_place(folder)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(_TEMPORARY, flags, 0o600, dir_fd=place), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(_TEMPORARY, _name(folder), src_dir_fd=place, dst_dir_fd=place)
            os.fsync(place)
            self.state = state
        finally:
            os.close(place)

    @staticmethod
    def left_in(folder: Folder) -> bool:
        """Whether a journal, or the beginning of one, is there."""
        place = _open_place(folder)
        try:
            with os.scandir(place) as items:
                return not {_name(folder), _TEMPORARY}.isdisjoint(item.name for item in items)
        finally:
            os.close(place)

    @classmethod
    def read(cls, folder: Folder) -> Journal | None:
        """Return the journal that an interrupted run left, or None."""
        place = _open_place(folder)
        name = _name(folder)
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
        except FileNotFoundError:
            return None
        finally:
            os.close(place)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            try:
                data = json.load(file)
                entries = [Entry(contained(e["path"]), e["before"], e["after"]) for e in data["entries"]]
                folders = [contained(path) for path in data["folders"]]
                emptied = [contained(path) for path in data.get("emptied", [])]
                state: State = data["state"]
                if data["schema"] != 1 or state not in ("staging", "replacing", "done"):
                    raise ValueError("unknown state")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                hint = "undo what it lists by hand and delete it"
                raise ScaffoldError(f"{folder.root}: the journal {name} is damaged", hint=hint) from error
        return cls(folders, entries, state, emptied)

    @staticmethod
    def remove(folder: Folder) -> None:
        """Delete the journal, the last step of every commit."""
        place = _open_place(folder)
        try:
            for name in (_TEMPORARY, _name(folder)):
                try:
                    os.unlink(name, dir_fd=place)
                except FileNotFoundError:
                    continue
                os.fsync(place)
        finally:
            os.close(place)


def _open_place(folder: Folder) -> int:
    """Open the folder of the journal: ``.git`` where it is a folder, else the root."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(".git", flags, dir_fd=folder.descriptor)
    except OSError:
        return os.open(".", flags, dir_fd=folder.descriptor)


def journal_path(folder: Folder) -> str:
    """Return where the journal of a folder stands, from its root."""
    name = _name(folder)
    return f".git/{name}" if name == NAME else name


def _name(folder: Folder) -> str:
    git = (folder.root / ".git").is_dir() and not (folder.root / ".git").is_symlink()
    return NAME if git else f".{NAME}"
