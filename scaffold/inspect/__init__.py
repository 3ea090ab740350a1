"""Answers questions about a vllm-omni pipeline from its source alone, each answer with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.inspect.facts import UNKNOWN, Confidence, Evidence, Fact
from scaffold.inspect.report import Report

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders
    from scaffold.upstream import UpstreamSource

__all__ = ["UNKNOWN", "Confidence", "Evidence", "Fact", "Report", "inspect_pipeline"]


def inspect_pipeline(source: UpstreamSource, pipeline: str, headers: CheckpointHeaders | None = None) -> Report:
    """Answer every question about one pipeline.

    Args:
        source: the version of vllm-omni to read; nothing of it is imported.
        pipeline: a registry key, a model folder (its first registered pipeline) or ``module:Class``.
        headers: the checkpoint's headers, where there is one.

    Raises:
        ScaffoldError: no such pipeline, or its module cannot be read.
    """
    import gc

    # The symbolic values of one inspection form one graph that is dropped as a whole.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _inspect(source, pipeline, headers)
    finally:
        if collecting:
            gc.enable()


def _inspect(source: UpstreamSource, pipeline: str, headers: CheckpointHeaders | None) -> Report:
    from scaffold.inspect.engine import answer_all
    from scaffold.inspect.program import Program
    from scaffold.upstream import resolve_pipeline

    target = resolve_pipeline(source, pipeline)
    program = Program(source, target, headers)
    program.run()
    # A class for image or video input refuses a request without one, a policy one without an observation.
    for more in ({"with_media": True}, {"with_everything": True}):
        if program.denoising is not None:
            break
        given = Program(source, target, headers, **more)
        given.run()
        if given.denoising is not None:
            program = given
    return answer_all(program)
