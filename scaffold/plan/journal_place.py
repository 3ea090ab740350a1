"""Where the journal of a folder is: never in the tree, where a branch or an archive could have put one."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from scaffold.errors import ScaffoldError

NAME = "omni-scaffold-journal"


def journal_place(root: Path) -> tuple[Path, str]:
    """Return the folder and the name of the journal of the existing folder ``root``; nothing is created.

    The folder is the user's private state folder, which may not exist yet. Git's own folder would not do: it can be
    part of an archive.

    Raises:
        ScaffoldError: no private folder is available.
    """
    # Machines that share a home may have different folders at this path.
    return _private_folder(), f"{NAME}-{_digest(f'{os.path.realpath(root)}:{root.stat().st_ino}')}.json"


def _digest(text: str) -> str:
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
