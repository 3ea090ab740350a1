"""What an integration must know about a pipeline."""

from __future__ import annotations

from typing import Annotated

import typer

from scaffold.cli.options import Checkpoint, ExportSvg, Format, VllmOmni
from scaffold.errors import ScaffoldError

ORDER = 10


def inspect(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="Registry key, model folder or module:Class.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print the table of all registered pipelines instead.")
    ] = False,
    checkpoint: Checkpoint = None,
    vllm_omni: VllmOmni = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the answers.")] = Format.text,
    export_svg: ExportSvg = None,
) -> None:
    """Answer what an integration must know about a pipeline, each answer with file and line."""
    from scaffold.inspect import inspect_pipeline
    from scaffold.upstream import locate

    if everything:
        if pipeline is not None or checkpoint is not None or export_svg is not None:
            raise ScaffoldError("--all takes no PIPELINE, --checkpoint or --export-svg: it looks at every pipeline")
        _inspect_all(vllm_omni, format)
        return
    if pipeline is None:
        raise ScaffoldError("no PIPELINE: give a registry key, a model folder or module:Class, or --all for all")
    headers = None
    if checkpoint is not None:
        from scaffold.checkpoint import read_checkpoint

        headers = read_checkpoint(checkpoint)
    report = inspect_pipeline(locate(vllm_omni), pipeline, headers)
    if format is Format.json:
        import json

        typer.echo(json.dumps(report.to_json(), indent=2))
        return
    from scaffold.inspect.text import print_report

    print_report(report, svg=export_svg)


def _inspect_all(vllm_omni: str | None, format: Format) -> None:
    import gc

    from scaffold.inspect.table import inspect_all

    gc.enable()  # one pipeline after the other: what the last one left goes
    table = inspect_all(vllm_omni)
    if format is Format.json:
        import json

        typer.echo(json.dumps(table, indent=2))
        return
    from scaffold.inspect.table_text import print_table
    from scaffold.upstream import locate

    print_table(table, locate(vllm_omni).label)
    typer.echo("\nnext: `omni-scaffold inspect PIPELINE` shows the answers for one, with where they stand")
