"""Where fetched wheels are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from scaffold.files.reading import expanded


def cache_root() -> Path:
    """Return the folder for downloads: ``$OMNI_SCAFFOLD_CACHE``, else the platform's user cache.

    The path is absolute; the folder is not created.
    """
    override = os.environ.get("OMNI_SCAFFOLD_CACHE")
    if override:
        return expanded(override).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        root = Path(base) if base else Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        root = Path(base) if base else Path.home() / ".cache"
    return root / "omni-scaffold"
