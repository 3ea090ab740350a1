"""A version of vllm-omni that is on this machine already; the network is never asked."""

from __future__ import annotations

from scaffold.errors import ScaffoldError
from scaffold.upstream.cache import cache_root
from scaffold.upstream.locate import DISTRIBUTION, installed
from scaffold.upstream.source import UpstreamSource, WheelSource
from scaffold.upstream.versions import is_same


def at_hand(version: str) -> UpstreamSource | None:
    """Return the source of a version: its cached wheel, or the installed distribution; None where neither is there."""
    stem = DISTRIBUTION.replace("-", "_")
    for wheel in sorted((cache_root() / "wheels").glob(f"{stem}-*.whl")):
        if is_same(wheel.name.split("-")[1], version):
            try:
                return WheelSource(wheel, version, version)
            except ScaffoldError:
                continue
    found = installed()
    return found if found is not None and is_same(found.version, version) else None
