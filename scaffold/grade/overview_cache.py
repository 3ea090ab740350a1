"""The table of ``omni-scaffold list`` of a release, kept in the cache: it takes a minute, and does not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaffold import own_process
from scaffold.grade.overview import overview
from scaffold.inspect.report_cache import CachedAnswer
from scaffold.progress import announce
from scaffold.upstream import UpstreamSource

_ROOMS = (
    "inspect",
    "source",
    "upstream",
    "checkpoint",
    "grade",
    "port",
    "remap",
    "render",
    "spec",
    "target",
    "presets",
)


def cached_overview(
    source: UpstreamSource, selector: str | None, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Return the table of `overview`, by a process of the console script the one that was kept of a release.

    A table in which a pipeline could not be read is not kept: a limit of time may have had a part.
    """
    if not (source.digest and own_process.MAY_CACHE):
        return overview(selector, progress=progress)
    entry = CachedAnswer("lists", [source.digest, source.version], _ROOMS)
    table: dict[str, Any] | None = entry.load()
    if table is None:
        announce(f"reading every pipeline of vllm-omni {source.label}: about a minute, and kept for the next time")
        table = overview(selector, progress=progress)
        if all(found["grade"] is not None for found in table["pipelines"]):
            entry.store(table)
    return table
