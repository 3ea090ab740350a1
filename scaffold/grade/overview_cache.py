"""Caches the table of ``omni-scaffold list`` of a release: it takes a minute, and does not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scaffold import limits
from scaffold.errors import ScaffoldError
from scaffold.grade.models_page import row as grade_row
from scaffold.inspect.report_cache import CachedAnswer
from scaffold.inspect.table import inspect_all, row
from scaffold.terminal.progress import announce
from scaffold.upstream import UpstreamSource

if TYPE_CHECKING:
    from scaffold.inspect.report import Report
    from scaffold.upstream import UpstreamSource


# Every pipeline of a version, with what `new` makes of it: ``omni-scaffold list``.


def overview(
    selector: str | None, processes: int | None = None, progress: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, Any]:
    """Inspect and grade every registered class of a version.

    Args:
        selector: as ``scaffold.upstream.locate`` takes it.
        processes: as ``scaffold.inspect.table.inspect_all`` takes it.
        progress: called with the number of pipelines that are done, and of all.

    Returns:
        The table of ``inspect_all``, and in each row ``modality`` (``image``, ``video``, ``audio``, ``action`` or
        None), ``media`` (what a request may bring beside its text), ``grade`` (None where the pipeline could not be
        read), ``left``: what a person must still write, each with its place, and ``needs``: what of it verl-omni does
        not carry, each with its place there.

    Raises:
        ScaffoldError: no such version, or it has no registry.
    """
    table = inspect_all(selector, processes, answer=graded_row, progress=progress)
    unread: dict[str, Any] = {"modality": None, "media": None, "grade": None, "left": [], "needs": []}
    return {**table, "pipelines": [{**unread, **found} for found in table["pipelines"]]}


def graded_row(report: Report, source: UpstreamSource) -> dict[str, Any]:
    """Return the row of one pipeline."""
    found = row(report, source)
    found["modality"] = report.fact("detail.media.kind").value
    found["media"] = report.fact("detail.media.inputs").value
    try:
        graded = grade_row(report.upstream.registry_keys[0], report, source)
    except ScaffoldError as error:
        return {**found, "grade": None, "left": [{"what": error.message, "at": None}], "needs": []}
    left = [{"what": missing["what"], "at": missing["at"]} for missing in graded.missing]
    needs = [{"what": need["what"], "at": need["at"]} for need in graded.needs]
    return {**found, "grade": graded.grade, "left": left, "needs": needs}


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
    """Return the table of `overview`; the console script's process reads and writes a cached table for a release.

    A table with an unreadable pipeline is not cached: a time limit may be the cause.
    """
    if not (source.digest and limits.MAY_CACHE):
        return overview(selector, progress=progress)
    entry = CachedAnswer("lists", [source.digest, source.version], _ROOMS)
    table: dict[str, Any] | None = entry.load()
    if table is None:
        announce(f"reading every pipeline of vllm-omni {source.label}: about a minute, and kept for the next time")
        table = overview(selector, progress=progress)
        if all(found["grade"] is not None for found in table["pipelines"]):
            entry.store(table)
    return table
