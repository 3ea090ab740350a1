"""Writes files of one folder: all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.plan.change import FileState, PlannedChange
from scaffold.plan.folder import Folder
from scaffold.plan.transaction import commit, recover_aloud


def write_files(root: Path, files: Mapping[str, bytes], seen: Mapping[str, bytes] | None = None) -> None:
    """Write files below ``root``; permissions of those that exist stay.

    Args:
        root: an existing folder.
        files: POSIX path below it -> content.
        seen: path -> what was read there before; where it has changed since, nothing is written.

    Raises:
        ScaffoldError: a file changed in between, or the disk refused.
    """
    if not root.is_dir():
        raise ScaffoldError(f"{root} is not a folder", hint="make it first")
    recover_aloud(root)
    changes = []
    with Folder(root) as folder:
        for path, content in files.items():
            before = folder.state(path)
            if before is not None and before.link:
                raise ScaffoldError(f"{root / path} is a symbolic link", hint="check and fix the file it leads to")
            if seen is not None and before is not None and before.content != seen.get(path):
                raise ScaffoldError(f"{root / path} changed while it was checked", hint="run the command again")
            after = FileState(content) if before is None else replace(before, content=content)
            if before != after:
                changes.append(PlannedChange(path, before, after))
    commit(root, changes)
