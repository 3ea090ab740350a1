"""Refuses pipelines for which ``new`` renders nothing, with the reason and its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.errors import RefusedError
from scaffold.inspect.report import CONDITIONS, IMPOSSIBLE

if TYPE_CHECKING:
    from scaffold.inspect import Report

DIFFUSERS_GUIDE = "docs/contributing/integrating_a_diffusion_model.md"


def refuse(report: Report) -> None:
    """Raise `RefusedError` for a pipeline that ``new`` does not support."""
    verdict, pipeline = report.verdict, f"{report.upstream.pipeline} of vllm-omni {report.upstream.label}"
    evidence = report.fact("verdict.path").evidence
    reason = f"{verdict['reason']}{f' ({evidence[0].file}:{evidence[0].line})' if evidence else ''}"
    if verdict["path"] == "diffusers":
        raise RefusedError(
            f"{pipeline} loads through diffusers: {reason}",
            hint=f"follow {DIFFUSERS_GUIDE}; that path needs no training module of its own",
        )
    if verdict["path"] == "refused":
        what = "cannot be trained" if report.fact(IMPOSSIBLE).value else "is not supported here"
        raise RefusedError(f"{pipeline} {what}: {reason}")
    if report.task is not None:
        _refuse_edit(report, pipeline)


def _refuse_edit(report: Report, pipeline: str) -> None:
    """Raise `RefusedError` if the pipeline does not generate an image, or does not use an image of the request."""
    kind, reached = report.fact("detail.media.kind"), report.fact(CONDITIONS)
    if kind.value != "image":
        raise RefusedError(f"--task edit: {pipeline} makes {kind.value or 'what its source does not say'}, no image")
    if reached.confidence == "unknown":
        raise RefusedError(f"--task edit: {pipeline}: what its denoiser is given of an image was not established")
    if not reached.value:
        place = f" ({reached.evidence[0].file}:{reached.evidence[0].line})" if reached.evidence else ""
        what = "nothing that its denoiser is given is made of an image that a request brings"
        raise RefusedError(f"--task edit: {pipeline} takes no reference images: {what}{place}")
