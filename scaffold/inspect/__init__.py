"""Answers questions about a vllm-omni pipeline from its source alone, each answer with its place."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold import limits
from scaffold.inspect import report_cache
from scaffold.inspect.facts import UNKNOWN, Confidence, Evidence, Fact
from scaffold.inspect.report import EDIT, FILES, STREAMED, Report, configured
from scaffold.upstream.own_pipeline import with_own_pipeline

# Facts a configuration file of the checkpoint may give instead of the source.
OF_FILES = (
    "answers.scheduler.shift",
    "answers.scheduler.direction",
    "answers.cfg.scales",
    "detail.scheduler.default_steps",
    "detail.request.sizes",
)

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders
    from scaffold.upstream import UpstreamSource

__all__ = ["EDIT", "UNKNOWN", "Confidence", "Evidence", "Fact", "Report", "inspect_pipeline"]


def inspect_pipeline(
    source: UpstreamSource, pipeline: str, headers: CheckpointHeaders | None = None, task: str | None = None
) -> Report:
    """Answer every question about one pipeline.

    Args:
        source: the version of vllm-omni to read; nothing of it is imported.
        pipeline: a registry key, a model folder (its first registered pipeline) or ``module:Class``.
        headers: the checkpoint's headers, where there is one.
        task: ``edit`` for a request that brings images; None for one of words alone.

    Raises:
        ScaffoldError: no such pipeline, or its module cannot be read.
    """
    source, pipeline = with_own_pipeline(source, pipeline)
    if source.digest and limits.MAY_CACHE:
        entry = report_cache.CachedReport(source, pipeline, task)
        report = entry.read()
        if report is None:
            begin = time.process_time()
            report = _inspect(source, pipeline, task)
            if time.process_time() - begin < report_cache.SECONDS:
                entry.write(report)
    else:
        report = _inspect(source, pipeline, task)
    if headers is None:
        return report
    if any(report.fact(key).confidence == "likely" for key in OF_FILES):
        report = _inspect(source, pipeline, task, headers)
    return _with_checkpoint(report, headers)


def _with_checkpoint(report: Report, headers: CheckpointHeaders) -> Report:
    """Return the report with the checkpoint's files instead of the loader's file pattern, and with scheduler and
    autoencoder facts from its configurations if the source lacks them.
    """
    stated, facts = report.fact(FILES), dict(report.facts)
    if STREAMED in (stated.value or ()):
        others = [name for name in stated.value if name != STREAMED]
        facts[FILES] = replace(stated, value=list(dict.fromkeys([*others, *(file.name for file in headers.files)])))
    return replace(report, facts={**facts, **configured(facts, headers)}, headers=headers)


def _inspect(
    source: UpstreamSource, pipeline: str, task: str | None, headers: CheckpointHeaders | None = None
) -> Report:
    # Put off: a report that is kept needs none of the hundred modules that execute a pipeline.
    from scaffold.inspect.engine import inspect_source

    return inspect_source(source, pipeline, task, headers)
