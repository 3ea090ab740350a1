"""The Python interface: what the commands do, as five functions that print and write nothing (docs/python.md).

Every function raises `ScaffoldError` for what a user can mend; its ``line`` is the error of the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.check import CheckReport, Finding, check_paths
from scaffold.errors import ScaffoldError
from scaffold.new import NewRequest, NewResult, plan_new

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaffold.inspect import Report
    from scaffold.verify.loading import LoadingProof
    from scaffold.verify.result import Level, VerifyReport

__all__ = [
    "CheckReport",
    "Finding",
    "NewRequest",
    "NewResult",
    "ScaffoldError",
    "check_paths",
    "inspect_pipeline",
    "load_headers",
    "plan_new",
    "verify",
]


def inspect_pipeline(
    pipeline: str, *, vllm_omni: str | None = None, checkpoint: str | Path | None = None, task: str | None = None
) -> Report:
    """Answer what an integration must know about a pipeline.

    Args:
        pipeline: a registry key, a model folder or ``module:Class``.
        vllm_omni: a version, a wheel or a folder; by default the installed one, else the tool's default version.
        checkpoint: folder, file or Hub repository whose headers are read.
        task: ``edit`` for a request that brings reference images; None for one of words alone.

    Raises:
        ScaffoldError: no such version, pipeline or checkpoint.
    """
    from scaffold.checkpoint import read_checkpoint
    from scaffold.inspect import inspect_pipeline as answer
    from scaffold.upstream import locate

    headers = read_checkpoint(checkpoint) if checkpoint is not None else None
    return answer(locate(vllm_omni), pipeline, headers, task)


def load_headers(package: str | Path, checkpoint: str | Path) -> LoadingProof:
    """Let a package's own loader load the headers of a checkpoint, in a child process.

    Args:
        package: the package's folder.
        checkpoint: folder, file or Hub repository whose headers are read.

    Raises:
        ScaffoldError: no such package or checkpoint, one that cannot be read, or a package that cannot be asked.
    """
    from scaffold.verify.loading import load_headers as load

    return load(package, checkpoint)


def verify(
    package: str | Path, *, checkpoint: str | Path | None = None, level: Level = "contract", select: Sequence[str] = ()
) -> VerifyReport:
    """Run a package on a tiny model, in child processes.

    Args:
        package: the package's folder.
        checkpoint: folder of a checkpoint whose configuration the model takes, shrunk.
        level: ``contract``, or ``rollout`` for the real vllm-omni too.
        select: ids of the contracts to run; empty for all.

    Raises:
        ScaffoldError: no such package, checkpoint or contract, or nothing to run it with.
    """
    from scaffold.verify.run import verify as run

    return run(package, checkpoint=checkpoint, level=level, select=select)
