"""Gives an unreleased source a version derived from its content."""

from __future__ import annotations

import hashlib
import re

from scaffold.upstream.at_hand import at_hand
from scaffold.upstream.builds import base_of, keep
from scaffold.upstream.own_pipeline import JoinedSource
from scaffold.upstream.source import PACKAGE, UpstreamSource


def identified(source: UpstreamSource) -> UpstreamSource:
    """Return an unreleased source with a version of its own, and keep its files in the cache.

    A folder without a version number is returned unchanged: its version is unknown.

    Raises:
        ScaffoldError: the cache cannot be written.
    """
    beside = source.beside if isinstance(source, JoinedSource) else {}
    base = source.base if isinstance(source, JoinedSource) else source
    if base.digest is not None and not beside:
        return source
    from packaging.version import Version

    if base.version is None:
        return source
    number = base_of(base.version).partition("+")[0]
    own = base.digest is None and not _is_release(base, number)
    if not own and not beside:
        return source
    digest = _digest(base, (PACKAGE,)) if own else ""
    digest = _sha256("".join([digest, *(_digest(one, (name,)) for name, one in sorted(beside.items()))]))
    name = re.sub(r"[^a-z0-9]+", ".", "-".join(beside).lower() or base.label.lower().removesuffix(".whl")).strip(".")
    version = str(Version(f"{number}+{name[:40].strip('.') or 'own'}.g{digest[:8]}"))
    packages = {**({PACKAGE: base} if own else {}), **beside}
    keep(version, number, packages)
    source.version = version
    return source


def _is_release(source: UpstreamSource, number: str) -> bool:
    """Whether a folder or a wheel equals the release of its number, if that release is on this machine."""
    release = at_hand(number)
    return release is not None and _digest(release, (PACKAGE,)) == _digest(source, (PACKAGE,))


def _digest(source: UpstreamSource, packages: tuple[str, ...]) -> str:
    """Return the digest of all Python files of a source, except the one that only holds its version."""
    files = [path for name in packages for path in source.files(f"{name}/") if path != f"{PACKAGE}/_version.py"]
    return _sha256("".join(f"{path}\0{_sha256(source.read(path))}\n" for path in files))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
