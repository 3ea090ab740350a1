"""The single steps of a commit on one path, each safe to repeat."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from scaffold.plan.change import FileState, PlannedChange
from scaffold.plan.folder import Folder
from scaffold.plan.journal import Entry

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def stage(folder: Folder, change: PlannedChange, entry: Entry) -> None:
    """Write the new content into the temporary sibling."""
    if change.after is not None:
        _write(folder, entry.temporary, change.after, _permissions(folder, change))


def backup(folder: Folder, change: PlannedChange, entry: Entry) -> None:
    """Keep the old content under the backup's name: the same inode where links can be made, else a copy."""
    if change.before is None:
        return
    _unlink(folder, entry.backup)
    with folder.parent(change.path) as (parent, name):
        permissions = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        other = entry.backup.rpartition("/")[2]
        try:
            os.link(name, other, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except OSError:
            _write(folder, entry.backup, change.before, permissions)


def place(folder: Folder, change: PlannedChange, entry: Entry) -> None:
    """Move the temporary sibling to its path, or delete what is there."""
    if change.after is None:
        _unlink(folder, change.path)
        return
    with folder.parent(change.path) as (parent, name):
        os.replace(entry.temporary.rpartition("/")[2], name, src_dir_fd=parent, dst_dir_fd=parent)


def put_back(folder: Folder, entry: Entry) -> bool:
    """Restore the old content; if the path or its backup has changed since, keep both and return False."""
    present = folder.state(entry.path)
    digest = present.digest if present else None
    if digest not in (entry.before, entry.after):
        return False
    if digest == entry.before:
        return True
    if entry.before is None:
        _unlink(folder, entry.path)
        return True
    if not _is_backup(folder, entry):
        return False
    with folder.parent(entry.path) as (parent, name):
        os.replace(entry.backup.rpartition("/")[2], name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
    return True


def clear(folder: Folder, entry: Entry, *, whole: bool) -> None:
    """Delete what is left of the siblings.

    Args:
        folder: the tree.
        entry: the path.
        whole: whether the backup was written completely; any other file in its place is not ours and stays.
    """
    _unlink(folder, entry.temporary)
    if not whole or _is_backup(folder, entry):
        _unlink(folder, entry.backup)


def _is_backup(folder: Folder, entry: Entry) -> bool:
    """Whether the backup holds the old content, by its digest."""
    state = folder.state(entry.backup)
    return state is not None and state.digest == entry.before


def sync(folder: Folder, entries: Iterable[Entry], folders: Iterable[str]) -> None:
    """Put the folders of all entries, new ones included, on disk."""
    parents = {entry.path.rpartition("/")[0] for entry in entries} | {path.rpartition("/")[0] for path in folders}
    for path in sorted(parents):
        with folder.parent(f"{path}/x" if path else "x") as (parent, _):
            os.fsync(parent)


def _write(folder: Folder, path: str, state: FileState, permissions: int | None) -> None:
    _unlink(folder, path)
    with folder.parent(path) as (parent, name):
        if state.link:
            os.symlink(os.fsdecode(state.content), name, dir_fd=parent)
            return
        descriptor = os.open(name, _NEW, 0o777 if state.executable else 0o666, dir_fd=parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(state.content)
            file.flush()
            if permissions is not None:
                os.fchmod(file.fileno(), permissions)
            os.fsync(file.fileno())


def _permissions(folder: Folder, change: PlannedChange) -> int | None:
    """Return the permissions of the replaced file, with the wanted executable bits."""
    if change.before is None or change.before.link or change.after is None or change.after.link:
        return None
    with folder.parent(change.path) as (parent, name):
        mode = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    if change.after.executable:
        return mode | (mode & 0o444) >> 2
    return mode & ~0o111


def _unlink(folder: Folder, path: str) -> None:
    try:
        with folder.parent(path) as (parent, name):
            os.stat(name, dir_fd=parent, follow_symlinks=False)  # on a read-only disk unlink fails first
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
