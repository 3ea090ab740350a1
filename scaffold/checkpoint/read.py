"""Where a checkpoint is: a path on this machine or a repository on the Hub."""

from __future__ import annotations

from pathlib import Path

from scaffold.checkpoint.headers import CheckpointHeaders
from scaffold.checkpoint.local import Progress, read_local
from scaffold.errors import ScaffoldError


def read_checkpoint(location: str | Path, *, progress: Progress | None = None) -> CheckpointHeaders:
    """Read a checkpoint's headers and configs, never its tensor data.

    Args:
        location: a folder, a ``.safetensors`` file, or an index of shards.
        progress: called with files read and files in all.

    Raises:
        ScaffoldError: nothing there, pickled weights only, or damaged or hostile files.
    """
    text = str(location)
    if not text or "\0" in text:
        raise ScaffoldError("the checkpoint's location is no path")
    path = Path(location)
    try:
        exists = path.exists()
    except OSError as error:
        raise ScaffoldError(f"cannot reach {path}: {error.strerror}") from None
    if not exists:
        raise ScaffoldError(f"there is no checkpoint at {path}")
    return read_local(path, progress)
