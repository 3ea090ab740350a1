"""Every registered pipeline of one version: its verdict and the answers that an overview needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.inspect import inspect_pipeline
from scaffold.inspect.report import SCHEMA, Report
from scaffold.limits.child_process import ended_with, interrupts_held
from scaffold.upstream import locate, read_registry

if TYPE_CHECKING:
    from scaffold.upstream import UpstreamSource

MAX_PROCESSES = 8
SHOWN = (
    ("denoiser", ("class", "method")),
    ("scheduler", ("class", "call", "arguments", "inline", "steps", "direction", "shift", "negated")),
    ("cfg", ("branches", "scales", "interval", "execution")),
    ("prompt", ("kind",)),
    ("vae", ("class",)),
)
"""The answers of a row; all of them are answers of the report of one pipeline."""

Answer = Callable[[Report, "UpstreamSource"], dict[str, Any]]
"""Makes a row of a report: `row`, or what a room further on adds to it; a function that another process can import."""

_source: UpstreamSource | None = None


def row(report: Report, source: UpstreamSource) -> dict[str, Any]:
    """One pipeline's row."""
    upstream, path = report.upstream, report.fact("verdict.path")
    place = path.evidence[0] if path.evidence else None
    shown = {question: {name: report.value(f"{question}.{name}") for name in names} for question, names in SHOWN}
    return {
        "pipeline": upstream.pipeline,
        "module": upstream.module,
        "registry_keys": list(upstream.registry_keys),
        "verdict": {
            **report.verdict,
            "confidence": path.confidence,
            "file": place.file if place else None,
            "line": place.line if place else None,
        },
        **shown,
    }


def registered_classes(source: UpstreamSource) -> dict[str, list[str]]:
    """The first registry key of each registered class, with all its keys, in the registry's order."""
    keys: dict[tuple[str, str, str], list[str]] = {}
    for key, entry in read_registry(source).items():
        keys.setdefault(entry, []).append(key)
    return {names[0]: names for names in keys.values()}


def inspect_all(
    selector: str | None,
    processes: int | None = None,
    *,
    answer: Answer = row,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Inspect every registered class of a version in parallel processes.

    Args:
        selector: as ``scaffold.upstream.locate`` takes it.
        processes: how many to start; one runs in this process. All processors that this process may use by default.
        answer: what makes the rows.
        progress: called with the number of pipelines that are done, and of all.

    Returns:
        The table: ``schema``, ``upstream`` and one row a class under ``pipelines``; unknown values are None. A class
        that does something else under another of its keys has a row for it.

    Raises:
        ScaffoldError: no such version, or it has no registry.
    """
    source = locate(selector)
    classes = registered_classes(source)
    keys = [key for names in classes.values() for key in names]
    count = min(processes or _processors(), MAX_PROCESSES, len(classes) or 1)
    if count == 1:
        rows = list(_counted((_row(source, key, answer) for key in keys), len(keys), progress))
    else:
        from concurrent.futures import ProcessPoolExecutor

        with ended_with(ProcessPoolExecutor(count, initializer=_open, initargs=(selector,))) as pool:
            with interrupts_held():  # the processes start here, and keep Ctrl-C blocked: it ends this one alone
                found = pool.map(partial(_row_of, answer), keys)
            rows = list(_counted(found, len(keys), progress))
    by_key = dict(zip(keys, rows, strict=True))
    return {
        "schema": SCHEMA,
        "upstream": {"version": source.version, "registry_keys": len(keys), "classes": len(classes)},
        "pipelines": [row for names in classes.values() for row in _together({k: by_key[k] for k in names})],
    }


def _counted(rows: Iterable[dict[str, Any]], of: int, progress: Callable[[int, int], None]) -> Iterator[dict[str, Any]]:
    progress(0, of)
    for done, found in enumerate(rows, 1):
        progress(done, of)
        yield found


def _together(rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for all keys of a class under which the answers are the same."""
    found: list[dict[str, Any]] = []
    for key, answers in rows.items():
        alike = next((r for r in found if {**r, "registry_keys": None} == {**answers, "registry_keys": None}), None)
        if alike is None:
            found.append({**answers, "registry_keys": [key]})
        else:
            alike["registry_keys"].append(key)
    return found


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _open(selector: str | None) -> None:
    """Read the version once in each process; syntax trees are shared by the pipelines inspected there."""
    global _source
    _source = locate(selector)


def _row_of(answer: Answer, key: str) -> dict[str, Any]:
    assert _source is not None
    return _row(_source, key, answer)


def _row(source: UpstreamSource, key: str, answer: Answer) -> dict[str, Any]:
    try:
        return answer(inspect_pipeline(source, key), source)
    except ScaffoldError as error:
        # One module that cannot be read leaves the rest of the table standing.
        verdict = {"path": None, "reason": str(error), "confidence": "unknown", "file": None, "line": None}
        empty = {question: dict.fromkeys(names) for question, names in SHOWN}
        return {"pipeline": key, "module": None, "registry_keys": [key], "verdict": verdict, **empty}
