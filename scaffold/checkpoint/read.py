"""Reads a checkpoint from a path on this machine or from a repository on the Hub."""

from __future__ import annotations

import re
from pathlib import Path

from scaffold.checkpoint.headers import CheckpointHeaders
from scaffold.checkpoint.local import Progress, read_local
from scaffold.errors import ScaffoldError
from scaffold.terminal.progress import progress_bar

_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@[\w./-]+)?", re.ASCII)
_LONGEST = 96
# Texts that are not an id on the Hub, or can only be a missing file.
_NO_ID = re.compile(r"--|\.\.|[.-](/|$)|\.(git|ipynb|safetensors|json|bin|pt|pth|ckpt|gguf)$")


def is_repository(text: str) -> bool:
    """Return whether a text has the form ``owner/name`` or ``owner/name@revision`` of an id on the Hub."""
    found = _REPOSITORY.fullmatch(text)
    return found is not None and len(found[1]) <= _LONGEST and _NO_ID.search(found[1]) is None


def read_checkpoint(location: str | Path, *, progress: Progress | None = None) -> CheckpointHeaders:
    """Read a checkpoint's headers and configs, never its tensor data.

    Args:
        location: a folder, a ``.safetensors`` file, an index of shards, or, as text, where no such path exists, a Hub
            repository ``owner/name`` or ``owner/name@revision``.
        progress: called with files read and files in all; without it, a bar appears on a terminal after a second.

    Raises:
        ScaffoldError: nothing there, pickled weights only, or damaged or hostile files.
    """
    if progress is None:
        with progress_bar(str(location)) as report:
            return read_checkpoint(location, progress=report)
    text = str(location)
    if not text or "\0" in text:
        raise ScaffoldError("the checkpoint's location is not a path")
    path = Path(location)
    try:
        exists = path.exists()
    except OSError as error:
        raise ScaffoldError(f"cannot reach {path}: {error.strerror}") from None
    if not exists and isinstance(location, str) and is_repository(location):
        from scaffold.checkpoint.hub import read_hub

        return read_hub(location, progress)
    if not exists:
        hint = "give a path that is there, or a Hub repository as owner/name"
        raise ScaffoldError(f"no such folder here: {text}", hint=hint)
    return read_local(path, progress)
