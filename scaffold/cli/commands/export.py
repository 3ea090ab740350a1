"""What training made of a released checkpoint, in its own layout."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli.answer import show_json, show_next
from scaffold.cli.options import Format
from scaffold.terminal.printable import printable

ORDER = 85
SCHEMA = 1


def export(
    package: Annotated[str, typer.Argument(metavar="PACKAGE", help="Folder of the package that was trained.")],
    source: Annotated[
        Path, typer.Option("--from", metavar="CHECKPOINT", help="Of the trainer: global_step_N, or the folder of all.")
    ],
    base: Annotated[
        Path, typer.Option("--base", metavar="RELEASE", help="Folder or file of the release it began with.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New folder, which gets a whole release.")],
    adapter: Annotated[bool, typer.Option("--adapter", help="Write the LoRA adapter alone, in PEFT's format.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How to print how far each tensor moved.")] = Format.text,
) -> None:
    """Write a trained model as a release, which vllm-omni loads.

    Files, names and fused layers are those of the release; what training does
    not hold is copied. It runs on a CPU, one tensor at a time. Exit 2 where
    nothing was moved.

    \b
    Example:
      omni-scaffold export foo_flow_grpo --from checkpoints/flow_grpo/foo --base ~/foo --out ~/new
    """
    from scaffold.verify.export import export as write

    outcome = write(package, source, base, out, adapter=adapter)
    if format is Format.json:
        show_json({"schema": SCHEMA, **outcome["told"]})
        return
    for line in outcome["lines"]:
        typer.echo(printable(str(line)))
    if not adapter:
        show_next(f"`omni-scaffold remap {shlex.quote(package)} --checkpoint {shlex.quote(str(out))}`")
