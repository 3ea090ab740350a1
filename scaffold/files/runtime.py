"""The installed runtime: its version, and which of its files are not the released ones."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from importlib import metadata
from pathlib import Path

from scaffold.files.digest import sha256_hex
from scaffold.files.reading import read_text
from scaffold.files.resources import installed_runtime, runtime_root

DISTRIBUTION = "flow-grpo-runtime"
_VERSION = re.compile(r"^VERSION = (\d{1,9})$", re.MULTILINE)
_LOCAL = re.compile(r'^LOCAL = "([a-z0-9]+(?:[.][a-z0-9]+)*)"', re.MULTILINE)


def version_in(text: str) -> int | None:
    """Return the version that the text of the runtime's ``__init__.py`` states."""
    found = _VERSION.search(text)
    return int(found[1]) if found else None


def local_in(text: str) -> str | None:
    """Return the name of a local version, which somebody gave to a runtime changed on purpose."""
    found = _LOCAL.search(text)
    return found[1] if found else None


def edited_installed() -> list[str]:
    """Return the names of the installed runtime's files that are not as released; none of a local version.

    A wheel records the digests of its files. Without them, as in an editable installation, the tool's own files of the
    same version count.
    """
    folder = installed_runtime()
    start = read_text(folder / "__init__.py")
    if local_in(start) is not None:
        return []
    digests = _recorded(folder)
    if not digests and version_in(start) == version_in(read_text(runtime_root() / "__init__.py")):
        digests = {path.name: sha256_hex(read_text(path)) for path in runtime_root().glob("*.py")}
    there = {path.name: sha256_hex(read_text(path)) for path in sorted(folder.glob("*.py"))}
    return [name for name, digest in there.items() if digests and digests.get(name) != digest]


def _recorded(folder: Path) -> dict[str, str]:
    try:
        files = metadata.distribution(DISTRIBUTION).files or []
    except metadata.PackageNotFoundError:
        return {}
    return {
        file.name: urlsafe_b64decode(file.hash.value + "==").hex()
        for file in files
        if file.hash is not None and file.hash.mode == "sha256" and Path(str(file.locate())).parent == folder
    }
