"""Refuses pipelines for which ``new`` renders nothing, with the reason and its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.errors import RefusedError
from scaffold.inspect.report import CONDITIONS, IMPOSSIBLE

if TYPE_CHECKING:
    from scaffold.inspect import Report


def refuse(report: Report) -> None:
    """Raise `RefusedError` for a pipeline that ``new`` does not support."""
    verdict, pipeline = report.verdict, f"{report.upstream.pipeline} of vllm-omni {report.upstream.label}"
    evidence = report.fact("verdict.path").evidence
    reason = f"{verdict['reason']}{f' ({evidence[0].file}:{evidence[0].line})' if evidence else ''}"
    if verdict["path"] == "refused":
        what = "cannot be trained" if report.fact(IMPOSSIBLE).value else "is not supported here"
        raise RefusedError(f"{pipeline} {what}: {reason}")
    if report.task is not None and verdict["path"] == "diffusers":
        raise RefusedError(f"--task {report.task}: {pipeline} loads through diffusers, and takes images without it")
    if report.task is not None:
        _refuse_edit(report, pipeline)


def _refuse_edit(report: Report, pipeline: str) -> None:
    """Raise `RefusedError` if the pipeline does not generate an image, or does not use an image of the request."""
    kind, reached = report.fact("detail.media.kind"), report.fact(CONDITIONS)
    if kind.value != "image":
        raise RefusedError(f"--task edit: {pipeline} makes {kind.value or 'what its source does not say'}, no image")
    place = f" ({reached.evidence[0].file}:{reached.evidence[0].line})" if reached.evidence else ""
    if reached.confidence == "unknown":
        beside = ": it is also given what the engine's context of a call holds" if place else ""
        told = f"what its denoiser is given of an image was not established{beside}{place}"
        raise RefusedError(f"--task edit: {pipeline}: {told}")
    if not reached.value:
        what = "nothing that its denoiser is given is made of an image that a request brings"
        raise RefusedError(f"--task edit: {pipeline} takes no reference images: {what}{place}")
