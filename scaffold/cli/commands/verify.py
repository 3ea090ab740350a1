"""A package run on a tiny model."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli.options import Format
from scaffold.interrupt import doing

ORDER = 70


class VerifyLevel(str, Enum):
    """How far ``verify`` goes."""

    contract = "contract"
    rollout = "rollout"


def verify(
    package: Annotated[
        Path, typer.Argument(metavar="PACKAGE", help="Folder of a package: DIR/verl_omni/pipelines/foo_flow_grpo.")
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Checkpoint whose configuration the model takes, shrunk."),
    ] = None,
    level: Annotated[
        VerifyLevel,
        typer.Option("--level", help="contract: seconds, no vllm. rollout: that, and vllm-omni itself on a CPU."),
    ] = VerifyLevel.contract,
    format: Annotated[Format, typer.Option("--format", help="How to print the results.")] = Format.text,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write a page (.html) or a section (.md).")
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="ID", help="Run this contract only; may be repeated.")
    ] = None,
) -> None:
    """Run a package on a tiny model, in child processes with limits, one line for each contract."""
    import gc

    from scaffold.verify.report import check_destination, print_report, write_report
    from scaffold.verify.run import verify as run_verify

    if report is not None:
        check_destination(report)
    gc.enable()  # tensors in cycles would fill the memory
    with doing("running the contracts"):
        found = run_verify(package, checkpoint=checkpoint, level=level.value, select=select or ())
    if format is Format.json:
        import json

        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        print_report(found)
    if report is not None:
        write_report(found, report)
    if found.failed:
        raise typer.Exit(1)
    if found.unmeasured or not found.checks:
        from scaffold.errors import ScaffoldError
        from scaffold.verify.report.verdict import verdict

        raise ScaffoldError(verdict(found).rstrip("."), hint="the report says why")
