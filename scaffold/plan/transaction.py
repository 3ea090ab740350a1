"""Makes all changes of a plan or none: staged beside their targets, journalled, then moved into place.

Order of a commit, each step on disk before the next begins:

1. journal in state ``staging``: names of everything that will be made;
2. new folders, new content in temporary siblings, the old files as backups under other names;
3. journal in state ``replacing``, then each sibling takes its place;
4. journal in state ``done``, then backups, emptied folders and journal go.

A run that dies leaves the journal. `recover` undoes one in state ``staging`` or ``replacing`` and tidies up after one
in state ``done``; the same code rolls back a commit that fails. A file that changed in between is kept.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scaffold.errors import ConflictError, ScaffoldError
from scaffold.plan.change import PlannedChange
from scaffold.plan.folder import Folder
from scaffold.plan.journal import Entry, Journal, JournalFile
from scaffold.plan.staging import backup, clear, place, put_back, stage, sync
from scaffold.terminal.interrupt import AGAIN, Interrupted, doing, leaving
from scaffold.terminal.printable import printable

ALL_WRITTEN = "all files were written; the next run there tidies up"
HALF_WRITTEN = f"{AGAIN}: it first undoes what is left"


def commit(root: Path, changes: Sequence[PlannedChange], emptied: Sequence[str] = ()) -> tuple[str, ...]:
    """Make the changes and return their paths; see the module for how.

    Args:
        root: the folder that receives the changes.
        changes: one for each path.
        emptied: folders to delete if the changes leave them empty; ``.`` is the root.

    Raises:
        ConflictError: a path no longer holds what the plan saw.
        ScaffoldError: another run holds the folder, or the disk refused; nothing was changed.
    """
    if not changes:
        return ()
    made = _make_root(root)
    try:
        with Folder(root) as folder:
            file = JournalFile(folder)
            _lock(folder)
            _recover(folder, file)
            _compare(folder, changes)
            with doing("writing"):
                _run(folder, file, changes, [path for path in emptied if path != "."])
    except BaseException:
        for path in made:
            _remove_if_empty(path)
        raise
    if "." in emptied and root.resolve() != Path.cwd():
        _remove_if_empty(root)
    return tuple(change.path for change in changes)


def is_interrupted(root: Path) -> bool:
    """Whether an interrupted run left a journal for ``root``; nothing is changed."""
    if not root.is_dir():
        return False
    with Folder(root) as folder:
        return JournalFile(folder).is_there()


def recover(root: Path) -> str | None:
    """Undo or finish an interrupted run in ``root``, and return which; None if there was none."""
    if not root.is_dir():
        return None
    with Folder(root) as folder:
        file = JournalFile(folder)
        if not file.is_there():
            return None
        _lock(folder)
        return _recover(folder, file)


def _run(folder: Folder, file: JournalFile, changes: Sequence[PlannedChange], emptied: Sequence[str]) -> None:
    folders = sorted({parent for change in changes if change.after for parent in folder.missing_parents(change.path)})
    entries = tuple(Entry.of(change) for change in changes)
    journal = Journal(folders, entries, emptied=emptied)
    current = journal_name = str(file.path)
    try:
        file.write(journal, "staging")
        for path in folders:
            current = path
            with folder.parent(path) as (parent, name):
                os.mkdir(name, dir_fd=parent)
        for change, entry in zip(changes, entries, strict=True):
            current = change.path
            stage(folder, change, entry)
            backup(folder, change, entry)
        current = journal_name
        sync(folder, entries, folders)
        file.write(journal, "replacing")
        for change, entry in zip(changes, entries, strict=True):
            current = change.path
            place(folder, change, entry)
        current = journal_name
        sync(folder, entries, folders)
        file.write(journal, "done")
    except BaseException as error:
        if journal.state == "done":
            raise Interrupted(left=ALL_WRITTEN) from None
        try:
            if journal.state == "replacing":
                # The journal on disk may already say "done" although writing it raised an error.
                file.write(journal, "replacing")
            _roll_back(folder, file, journal)
        except OSError as second:
            problem = f"{current}: {error}; undoing it failed too: {second.strerror or second}"
            raise ScaffoldError(problem, hint="run the command again to undo it") from error
        except KeyboardInterrupt:
            raise Interrupted("undoing what it had begun", HALF_WRITTEN) from None
        if isinstance(error, OSError):
            problem = f"{folder.root / current}: {error.strerror or error}; nothing was changed"
            raise ScaffoldError(problem, hint="see that there is room and that you may write there") from error
        raise
    try:
        with leaving(ALL_WRITTEN):
            _tidy(folder, file, journal)
    except OSError as error:  # everything is in place
        print(printable(f"note: {folder.root}: {ALL_WRITTEN}; {error.strerror or error}"), file=sys.stderr)


def _recover(folder: Folder, file: JournalFile) -> str | None:
    try:
        return _finish(folder, file)
    except OSError as error:
        problem = f"{folder.root}: what an interrupted run left cannot be undone: {error.strerror or error}"
        raise ScaffoldError(problem, hint="run the command again") from error


def _finish(folder: Folder, file: JournalFile) -> str | None:
    journal = file.read()
    if journal is None:
        file.remove()  # a run that died before it created anything else
        return None
    if journal.state == "done":
        _tidy(folder, file, journal)
        return "finished an interrupted run: all its files were in place"
    kept = _roll_back(folder, file, journal)
    note = f"; changed since and kept: {', '.join(kept)}" if kept else ""
    return f"undid an interrupted run{note}"


def _roll_back(folder: Folder, file: JournalFile, journal: Journal) -> list[str]:
    kept = []
    for entry in reversed(journal.entries):
        if journal.state == "replacing" and not put_back(folder, entry):
            kept.append(entry.path)
        clear(folder, entry, whole=journal.state == "replacing")
    for path in reversed(journal.folders):
        _remove_folder(folder, path)
    file.remove()
    return kept


def _tidy(folder: Folder, file: JournalFile, journal: Journal) -> None:
    for entry in journal.entries:
        clear(folder, entry, whole=True)
    for path in sorted(journal.emptied, reverse=True):
        _remove_folder(folder, path)
    file.remove()


def _remove_folder(folder: Folder, path: str) -> None:
    try:
        with folder.parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)
    except (OSError, ScaffoldError):
        return  # missing, not a folder, or not empty


def _compare(folder: Folder, changes: Sequence[PlannedChange]) -> None:
    moved = [change.path for change in changes if folder.state(change.path) != change.before]
    if moved:
        raise ConflictError(f"changed since the plan was made: {', '.join(moved[:10])}", hint="run the command again")


def _lock(folder: Folder) -> None:
    try:
        fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ScaffoldError(f"another run is writing into {folder.root}", hint="wait until it is done") from error
    except OSError:
        return  # a file system without locks


def _make_root(root: Path) -> list[Path]:
    """Create the root and return the folders created, innermost first."""
    made = []
    missing = root
    while not missing.exists():
        made.append(missing)
        missing = missing.parent
    try:
        if made:
            root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScaffoldError(f"{root}: cannot be made: {error.strerror}") from error
    return made


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return


def recover_aloud(root: Path, *, dry: bool = False) -> None:
    """Undo or finish an interrupted run in ``root``, and say which on stderr.

    Args:
        root: the tree.
        dry: nothing may be written.

    Raises:
        ScaffoldError: it cannot be undone, or ``dry`` forbids it: the command would then show something other than what
            it would do.
    """
    if dry:
        if is_interrupted(root):
            hint = "the next `new`, `update` or `remove` there that writes undoes or finishes it"
            raise ScaffoldError(f"{root}: an interrupted run left its changes half made", hint=hint)
        return
    said = recover(root)
    if said is not None:
        print(printable(f"note: {root}: {said}"), file=sys.stderr)
