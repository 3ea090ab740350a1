"""Another release of diffusers, unzipped in the cache, for a child process of its own."""

from __future__ import annotations

import zipfile
from importlib import metadata
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import open_file
from scaffold.scratch import scratch_folder
from scaffold.upstream.cache import cache_root
from scaffold.upstream.fetch import fetch_wheel

DISTRIBUTION = "diffusers"


def installed_diffusers() -> str | None:
    """Version of the installed diffusers, or None."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


def other_diffusers(version: str) -> Path:
    """Folder that holds ``diffusers/`` of ``version`` and nothing else, fetched and unzipped on first use.

    Raises:
        ScaffoldError: the release cannot be fetched, or the cache cannot be written.
    """
    folder = cache_root() / "unzipped" / f"{DISTRIBUTION}-{version}"
    if folder.is_dir():
        return folder
    wheel = fetch_wheel(DISTRIBUTION, version)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder("unzip", folder.parent) as staging:
            with open_file(wheel) as stream, zipfile.ZipFile(stream) as archive:
                archive.extractall(staging)
            try:
                staging.replace(folder)
            except OSError:  # another process may have been faster; both folders are the same
                if not folder.is_dir():
                    raise
    except (OSError, zipfile.BadZipFile) as error:
        raise ScaffoldError(f"{wheel.name} cannot be unzipped into {folder.parent}: {error}") from None
    return folder
