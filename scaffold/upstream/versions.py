"""Compares versions by PEP 440, ignoring a local part such as ``+cu129``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version


def is_same(first: str | None, second: str | None) -> bool | None:
    """Whether two texts are the same version; None if one of them is not a version."""
    pair = _read(first), _read(second)
    return None if None in pair else pair[0] == pair[1]


def is_older(first: str | None, second: str | None) -> bool | None:
    """Whether the first version is older than the second; None if one of them is not a version."""
    one, other = _read(first), _read(second)
    return None if one is None or other is None else one < other


def fits(asked: str | None, version: str | None) -> bool | None:
    """Whether a version equals the requested one, or satisfies a requirement such as ``~=0.27.0``.

    None if nothing is requested, or one of the two cannot be parsed.
    """
    if asked is None or version is None:
        return None
    if asked[:1].isdigit():
        return asked == version or is_same(asked, version)
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    requirement, found = asked, _read(version)
    try:
        return None if found is None else SpecifierSet(requirement).contains(found, prereleases=True)
    except InvalidSpecifier:
        return None


def _read(text: str | None) -> Version | None:
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(text or "")
        return Version(version.public)
    except InvalidVersion:
        return None
