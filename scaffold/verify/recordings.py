"""Rollouts of the real pipeline, recorded for level ``contract``, and the tiny checkpoint of a ported package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.facts import NotEstablishedError
from scaffold.verify.rollout.level import environment_of, kept_log, make_plan
from scaffold.verify.rollout.process import run_process

if TYPE_CHECKING:
    from scaffold.verify.package import Package
    from scaffold.verify.rollout.level import Plan


def recorded(
    package: Package, scratch: Path, dtypes: Sequence[str], checkpoint: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Make the recordings.

    Args:
        package: one with a ported denoiser, or a hand-written one with its table.
        scratch: an empty folder that outlives the contracts.
        dtypes: precisions to run the pipeline in.
        checkpoint: its configuration gives the tiny checkpoint's settings.

    Returns:
        By precision: ``checkpoint`` and ``folder``, where the checkpoint and the recording lie; or ``unknown``, the
        reason why there is none, which also stands under ``failed`` where the pipeline ran and gave none.
    """
    found = environment_of(package)
    try:
        if isinstance(found, str):
            raise NotEstablishedError(f"what its pipeline does only the pipeline knows, and {found}")
        plan = make_plan(package, found, checkpoint, scratch)
    except NotEstablishedError as reason:
        return {dtype: {"unknown": str(reason)} for dtype in dtypes}
    return {dtype: _made(plan, dtype, scratch / dtype) for dtype in dtypes}


def _made(plan: Plan, dtype: str, folder: Path) -> dict[str, Any]:
    """One recording; the files of its process stand beside it."""
    folder.mkdir()
    task = plan.task(dtype, folder / "recording.jsonl", recording=str(folder))
    file = folder / "recording.json"
    task.write(file)
    ending = run_process(plan.environment, file, folder / "recording.log", profile=plan.profile)
    if ending.problem is not None:
        log = kept_log(folder / "recording.log", "recording")
        told = f"the real pipeline could not be recorded: {ending.problem}; all it printed: {log}"
        return {"unknown": told, "failed": told}
    return {"checkpoint": task.checkpoint, "folder": str(folder)}
