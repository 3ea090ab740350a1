"""Finds a version of vllm-omni on this machine, without using the network."""

from __future__ import annotations

from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.upstream.builds import is_own, kept
from scaffold.upstream.cache import cache_root
from scaffold.upstream.fetch import problem_with
from scaffold.upstream.locate import DISTRIBUTION, installed
from scaffold.upstream.source import UpstreamSource, WheelSource
from scaffold.upstream.versions import is_same


def at_hand(version: str) -> UpstreamSource | None:
    """Return the source of a version: its cached wheel, else the installed distribution, else None."""
    if "+" in version:
        if is_own(version):
            return kept(version, at_hand)
    for wheel in _cached(version):
        try:
            return WheelSource(wheel, version, version)
        except ScaffoldError:
            continue
    found = installed()
    return found if found is not None and is_same(found.version, version) else None


def damaged(version: str) -> str | None:
    """Return which cached wheel of a version is damaged, and how; None if none is."""
    # Imported here: it checks digests and archives, which reading a version does not need.
    return next((f"{wheel} {why}" for wheel in _cached(version) if (why := problem_with(wheel)) is not None), None)


def _cached(version: str) -> list[Path]:
    found = sorted((cache_root() / "wheels").glob(f"{DISTRIBUTION.replace('-', '_')}-*.whl"))
    named = [(wheel, wheel.name.split("-")[1]) for wheel in found]
    return [wheel for wheel, name in named if name == version] or [
        wheel for wheel, name in named if is_same(name, version)
    ]
