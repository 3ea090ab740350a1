"""Undoes some edits of a target's file and makes others."""

from __future__ import annotations

from collections.abc import Iterable

from scaffold.errors import ScaffoldError
from scaffold.plan.change import FileState, PlannedChange, as_there, plain
from scaffold.plan.edits import FileEdit


def rewired(
    path: str, before: FileState | None, *, made: Iterable[FileEdit] = (), wanted: Iterable[FileEdit] = ()
) -> PlannedChange:
    """Plan one file of the target: undo edits that were ``made`` and are no longer ``wanted``.

    Raises:
        ScaffoldError: there is no such text file, or an edit has no place in it.
    """
    if before is None or before.link:
        raise ScaffoldError(f"{path}: expected a file of the checkout, found {'a link' if before else 'nothing'}")
    found = plain(before)
    assert found is not None
    try:
        text = found.content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ScaffoldError(f"{path}: is not UTF-8 text") from error
    keep = list(wanted)
    for edit in made:
        if edit not in keep:
            text = edit.revert(text)
    for edit in keep:
        text = edit.apply(text)
    return PlannedChange(path, before, as_there(FileState.text(text, executable=before.executable), before))
