"""File helpers of data preprocessors; the kit knows local paths only."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def _local(path: str) -> Path:
    if str(path).startswith("hdfs://"):
        raise NotImplementedError(f"the contract kit has no HDFS client for {path}")
    return Path(path)


def makedirs(name: str, mode: int = 0o777, exist_ok: bool = False, **kwargs: Any) -> None:
    """Make folder ``name`` and those above it.

    Raises:
        FileExistsError: it exists and ``exist_ok`` is false.
        NotImplementedError: ``name`` is an HDFS address.
    """
    _local(name).mkdir(mode=mode, parents=True, exist_ok=exist_ok)


def copy(src: str, dst: str, **kwargs: Any) -> Any:
    """Copy a file or a whole folder and return where it went; ``kwargs`` go to ``shutil``.

    Raises:
        NotImplementedError: one of the two is an HDFS address.
    """
    source, target = _local(src), _local(dst)
    return str(shutil.copytree(source, target, **kwargs) if source.is_dir() else shutil.copy(source, target, **kwargs))
