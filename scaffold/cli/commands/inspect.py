"""What an integration must know about a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli import completion
from scaffold.cli.answer import show_json
from scaffold.cli.options import Checkpoint, ExportSvg, Format, Task, TaskOption, VllmOmni
from scaffold.errors import ScaffoldError
from scaffold.terminal.printable import printable

ORDER = 30


def inspect(
    pipeline: Annotated[
        str | None,
        typer.Argument(
            metavar="PIPELINE",
            help="Registry key, model folder or module:Class.",
            autocompletion=completion.pipelines,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="The same as `omni-scaffold list`.")] = False,
    checkpoint: Checkpoint = None,
    vllm_omni: VllmOmni = None,
    task: TaskOption = Task.generate,
    format: Annotated[Format, typer.Option("--format", help="How to print the answers.")] = Format.text,
    export_svg: ExportSvg = None,
    fact: Annotated[
        str | None, typer.Option("--show", metavar="FACT", help="Show the lines of source that one answer rests on.")
    ] = None,
    extract: Annotated[
        Path | None, typer.Option("--extract", metavar="DIR", help="Also write the files that answers rest on.")
    ] = None,
) -> None:
    """Answer what an integration must know about a pipeline.

    Each answer with file and line, unknown where the source does not say.

    \b
    Examples:
      omni-scaffold inspect MyPipeline --vllm-omni 0.27.0rc1
      omni-scaffold inspect MyPipeline --show scheduler.steps
    """
    from scaffold.inspect import inspect_pipeline
    from scaffold.upstream import DEFAULT_VERSION, locate
    from scaffold.upstream.own_pipeline import with_own_pipeline

    if everything:
        if any(given is not None for given in (pipeline, checkpoint, export_svg, fact, extract)):
            raise ScaffoldError("--all takes no PIPELINE, and of the options --vllm-omni and --format: it looks at all")
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
    asked = pipeline
    source, pipeline = with_own_pipeline(locate(vllm_omni), pipeline)
    report = inspect_pipeline(source, pipeline, headers, task.asked)
    if fact is not None or extract is not None:
        from scaffold.inspect.sources import lines_of, plan_extract, print_lines

        answer = lines_of(report, source, fact) if fact is not None else None
        if extract is not None:
            written = plan_extract(report, source, extract).commit()
            typer.echo(printable(f"wrote {len(written)} files to {extract}"), err=True)
        if answer is not None:
            show_json(answer) if format is Format.json else print_lines(answer)
            return
    if format is Format.json:
        show_json(report.to_json())
        return
    from scaffold.inspect.text import print_report

    options = [] if vllm_omni in (None, DEFAULT_VERSION) else ["--vllm-omni", str(vllm_omni)]
    options += [] if checkpoint is None else ["--checkpoint", str(checkpoint)]
    print_report(report, svg=export_svg, options=options, asked=asked)
