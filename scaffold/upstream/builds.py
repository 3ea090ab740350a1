"""Unreleased vllm-omni: a fork, a local build, or a release with a user's own pipeline.

Such a source gets a version that differs from every release: its own number, its name and the start of its digest, as
in ``0.30.0+lantern.g1a2b3c4d``. Its files are kept in the cache, so that later commands find it by that version.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.documents import MalformedError, parse_json
from scaffold.files.reading import read_text
from scaffold.upstream.cache import cache_root
from scaffold.upstream.own_pipeline import JoinedSource
from scaffold.upstream.source import PACKAGE, FolderSource, UpstreamSource
from scaffold.version_text import is_version

RECORD = "omni-scaffold.json"
_OWN = re.compile(r"(?P<base>[^+]+)\+(?P<name>[a-z0-9.]+)\.g[0-9a-f]{8}\Z")


def is_own(version: str | None) -> bool:
    """Whether a version is one of an unreleased build."""
    return version is not None and is_version(version) and _OWN.match(version) is not None


def base_of(version: str) -> str:
    """Return the base version of a build, or the version of a release."""
    found = _OWN.match(version) if is_own(version) else None
    return found["base"] if found is not None else version


def kept(version: str, release: Callable[[str], UpstreamSource | None]) -> UpstreamSource | None:
    """Return the source of a build by its version; None if it is not in the cache.

    Args:
        version: the build's version.
        release: returns the source of the release that an own pipeline belongs to.
    """
    folder = build_folder(version)
    try:
        record = parse_json(read_text(folder / RECORD))
        number, packages = str(record["base"]), tuple(map(str, record["packages"]))
    except (OSError, MalformedError, KeyError, TypeError):
        return None
    here = FolderSource(folder, number, version)
    if PACKAGE in packages:
        base: UpstreamSource = here
    else:
        found = release(number)
        if found is None:
            return None
        base = found
    more = [name for name in packages if name != PACKAGE]
    source = JoinedSource(base, dict.fromkeys(more, here)) if more else base
    source.version, source.label = version, version
    return source


def build_folder(version: str) -> Path:
    """Return the folder in which the files of a build are kept."""
    return cache_root() / "builds" / version


def keep(version: str, number: str, packages: Mapping[str, UpstreamSource]) -> None:
    """Copy the packages of a build into the cache, unless they are there.

    Raises:
        ScaffoldError: the cache cannot be written, or a package cannot be read.
    """
    folder = build_folder(version)
    if (folder / RECORD).is_file():
        return
    staged = folder.with_name(f".{secrets.token_hex(8)}")
    try:
        staged.mkdir(parents=True)
        for name, source in packages.items():
            source.copy(name, staged)
        text = json.dumps({"base": number, "packages": sorted(packages)}) + "\n"
        (staged / RECORD).write_text(text, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        staged.replace(folder)
    except OSError as error:
        raise ScaffoldError(
            f"cannot keep vllm-omni {version} in {folder.parent}: {error.strerror or error}",
            hint="set OMNI_SCAFFOLD_CACHE",
        ) from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
