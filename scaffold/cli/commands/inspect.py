"""What an integration must know about a pipeline."""

from __future__ import annotations

from typing import Annotated

import typer

from scaffold.cli.answer import show_json
from scaffold.cli.options import Checkpoint, ExportSvg, Format, VllmOmni
from scaffold.errors import ScaffoldError

ORDER = 30


def inspect(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="Registry key, model folder or module:Class.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="The same as `omni-scaffold list`.")] = False,
    checkpoint: Checkpoint = None,
    vllm_omni: VllmOmni = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the answers.")] = Format.text,
    export_svg: ExportSvg = None,
) -> None:
    """Answer what an integration must know about a pipeline.

    Each answer with file and line, unknown where the source does not say.

    \b
    Example:
      omni-scaffold inspect BagelPipeline --vllm-omni 0.27.0rc1
    """
    from scaffold.inspect import inspect_pipeline
    from scaffold.upstream import locate

    if everything:
        if pipeline is not None or checkpoint is not None or export_svg is not None:
            raise ScaffoldError("--all takes no PIPELINE, --checkpoint or --export-svg: it looks at every pipeline")
        from scaffold.cli.commands.list import list as list_pipelines

        list_pipelines(vllm_omni, format)
        return
    if pipeline is None:
        raise ScaffoldError(
            "no PIPELINE: give a registry key, a model folder or module:Class; `omni-scaffold list` has all"
        )
    headers = None
    if checkpoint is not None:
        from scaffold.checkpoint import read_checkpoint

        headers = read_checkpoint(checkpoint)
    report = inspect_pipeline(locate(vllm_omni), pipeline, headers)
    if format is Format.json:
        show_json(report.to_json())
        return
    from scaffold.inspect.text import print_report

    print_report(report, svg=export_svg)
