"""The map from a checkpoint's keys to the training module, proved."""

from __future__ import annotations

from typing import Annotated

import typer

from scaffold.cli.answer import show_json
from scaffold.cli.options import Checkpoint, Format, VllmOmni

ORDER = 50


def remap(
    target: Annotated[
        str, typer.Argument(metavar="PACKAGE_OR_PIPELINE", help="Folder of a rendered package, or a pipeline.")
    ],
    checkpoint: Checkpoint = None,
    vllm_omni: VllmOmni = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the map and its proof.")] = Format.text,
    meta: Annotated[
        bool, typer.Option("--meta", help="Build the package's module on torch's meta device; this runs its code.")
    ] = False,
    lora_targets: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="LoRA targets to prove instead of the package's own.")
    ] = None,
) -> None:
    """Prove the map from a checkpoint's keys to the training module.

    Exit 1 where it does not hold.

    \b
    Example:
      omni-scaffold remap verl_omni/pipelines/foo_flow_grpo --checkpoint ~/weights/foo
    """
    from scaffold.remap.command.request import RemapRequest, remap
    from scaffold.remap.command.text import finding_lines, print_result

    result = remap(RemapRequest(target, checkpoint, vllm_omni, meta, lora_targets))
    if format is Format.json:
        show_json(result.proof.to_json())
        for line in finding_lines(result):
            typer.echo(line, err=True)
    else:
        print_result(result)
        typer.echo(f"next: {result.advice}")
    if not result.proof.holds:
        raise typer.Exit(1)
