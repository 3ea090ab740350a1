"""Has the real pipeline of a ported package make a tiny checkpoint and rollouts, for level ``contract`` to run on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaffold.verify.package import Package


def recorded(package: Package, checkpoint: Path | None, scratch: Path) -> dict[str, Any]:
    """Make the recording.

    Args:
        package: one with a ported denoiser.
        checkpoint: a checkpoint to take in place of a tiny one.
        scratch: an empty folder that outlives the contracts.

    Returns:
        ``checkpoint`` and ``folder``, where the checkpoint and the recording lie; or ``unknown``, the reason why there
        is none.
    """
    import os

    from scaffold.resources import kit_root
    from scaffold.verify.rollout.environment import find_environment
    from scaffold.verify.rollout.facts import NotEstablishedError
    from scaffold.verify.rollout.level import VERSION, kept_log, make_plan, package_version
    from scaffold.verify.rollout.process import run_process
    from scaffold.verify.rollout.task import Task

    found = find_environment(os.environ.get(VERSION) or package_version(package))
    if isinstance(found, str):
        return {"unknown": f"what a ported denoiser is given only its pipeline knows, and {found}"}
    try:
        plan = make_plan(package, found, checkpoint, scratch)
    except NotEstablishedError as reason:
        return {"unknown": str(reason)}
    place = plan.checkpoint if plan.grown is None else plan.grown / "float32"
    task = Task(
        root=str(package.root),
        package=package.module,
        library=None if plan.library is None else str(plan.library),
        kit=str(kit_root()),
        kit_profile=plan.profile,
        checkpoint=str(place),
        builder=None,
        dtype="float32",
        facts=plan.facts,
        checks=[],
        results=str(scratch / "recording.jsonl"),
        recording=str(scratch),
    )
    file = scratch / "recording.json"
    task.write(file)
    ending = run_process(plan.environment, file, scratch / "recording.log", profile=plan.profile)
    if ending.problem is not None:
        log = kept_log(scratch / "recording.log", "recording")
        return {"unknown": f"the real pipeline could not be recorded: {ending.problem}; all it printed: {log}"}
    return {"checkpoint": str(place), "folder": str(scratch)}
