"""Finds the ``UpstreamSource`` the user named, or the default."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import expanded, read_text
from scaffold.upstream.builds import is_own, kept
from scaffold.upstream.fetch import fetch_wheel, stored_digest
from scaffold.upstream.pip import newest_release
from scaffold.upstream.source import MAX_FILE_BYTES, PACKAGE, FolderSource, UpstreamSource, WheelSource
from scaffold.version_text import is_version

DEFAULT_VERSION = "0.27.0rc1"
DISTRIBUTION = "vllm-omni"
NEWEST = "newest"

_WHEEL = r"(?P<name>[^-]+)-(?P<version>[^-]+)-.+\.whl\Z"


def locate(selector: str | None, *, checkout_pin: str | None = None) -> UpstreamSource:
    """Find the source of vllm-omni to read.

    Args:
        selector: a version, ``newest`` for the newest release on the package index, the path of a wheel, or a folder
            holding ``vllm_omni/``; None picks the first of ``checkout_pin``, the installed distribution,
            ``DEFAULT_VERSION``.
        checkout_pin: the version pinned by a checkout of the target repository.

    Raises:
        ScaffoldError: no usable source is found, or a version cannot be fetched.
    """
    if selector is None:
        if checkout_pin:
            return locate_version(checkout_pin)
        return installed() or locate_version(DEFAULT_VERSION)
    text = selector.strip()
    if not text:
        raise ScaffoldError("the vllm-omni selector is empty", hint="give a version, a wheel or a folder")
    path = expanded(text)
    if path.is_dir():
        return _folder(path, text)
    if path.is_file():
        return _wheel(path, text)
    if text == NEWEST:
        return locate_version(newest_release(DISTRIBUTION))
    if is_version(text):
        return locate_version(text)
    kind = "wheel" if text.endswith(".whl") else "version, wheel or folder"
    raise ScaffoldError(f"no such {kind}: {text}", hint="give a version such as " + DEFAULT_VERSION)


def locate_version(version: str) -> UpstreamSource:
    """Find the source of a version that somebody else names, a checkout or a record: nothing else is read for it.

    Raises:
        ScaffoldError: it is no version, or cannot be fetched.
    """
    if "+" in version:
        if is_own(version):
            build = kept(version, locate_version)
            if build is None:
                why = f"vllm-omni {version} is a build of somebody's own, which this machine has not kept"
                raise ScaffoldError(why, hint="name its folder or wheel")
            return build
    plain = version.lstrip("v").removeprefix("==").strip()
    if not is_version(plain):
        raise ScaffoldError(f"{version!r} is not a version", hint="give a version such as " + DEFAULT_VERSION)
    # Imported here, as below: `check` reads local sources and fetches nothing.

    wheel = fetch_wheel(DISTRIBUTION, plain)
    source = WheelSource(wheel, plain, plain)
    source.digest = stored_digest(wheel)
    return source


def _folder(path: Path, text: str) -> UpstreamSource:
    if not (path / PACKAGE / "__init__.py").is_file():
        raise ScaffoldError(f"{text} holds no {PACKAGE}/", hint=f"name the folder that holds {PACKAGE}/ itself")
    return FolderSource(path, _folder_version(path), path.name or text)


def _folder_version(path: Path) -> str | None:
    """Return the version the build wrote beside the package, if any."""
    for info in sorted(path.glob("vllm_omni-*.dist-info")):
        number = info.name.removeprefix("vllm_omni-").removesuffix(".dist-info")
        return number if is_version(number) else None
    generated = path / PACKAGE / "_version.py"
    try:
        text = read_text(generated, MAX_FILE_BYTES, inside=path, errors="replace")
    except OSError:
        return None
    found = re.search(r"^(?:__version__ = )?(?:version = )?['\"](\d[^'\"]*)['\"]", text, re.MULTILINE)
    return found.group(1) if found and is_version(found.group(1)) else None


def _wheel(path: Path, text: str) -> UpstreamSource:
    named = re.match(_WHEEL, path.name)
    if named is None:
        raise ScaffoldError(f"{text} is not a wheel", hint="wheels end in .whl")
    source = WheelSource(path, named.group("version"), path.name)
    if not source.exists(f"{PACKAGE}/__init__.py"):
        raise ScaffoldError(f"{text} holds no {PACKAGE}/", hint="give a wheel of vllm-omni")
    return source


def installed() -> UpstreamSource | None:
    if not any((Path(entry) / PACKAGE / "__init__.py").is_file() for entry in sys.path):
        return None
    # Imported here: importing it takes longer than reading the registry of a version.
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    root = Path(str(distribution.locate_file("")))
    if not (root / PACKAGE / "__init__.py").is_file():
        # An editable installation keeps its source elsewhere; its version can still be fetched.
        return None
    return FolderSource(root, distribution.version, f"{distribution.version} (installed)", linked=True)
