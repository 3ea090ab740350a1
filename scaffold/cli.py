"""The command line: one function per command; everything heavy is imported inside it."""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from scaffold import __version__
from scaffold.errors import ScaffoldError

app = typer.Typer(
    name="omni-scaffold",
    help="Bring a model that diffusers cannot load into VeRL-Omni: inspect its vllm-omni pipeline, render the "
    "integration, keep it right.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(str, Enum):
    """Output formats of ``inspect``."""

    text = "text"
    json = "json"


VllmOmni = Annotated[
    str | None,
    typer.Option("--vllm-omni", metavar="VERSION|WHEEL|DIR", help="vllm-omni to read; fetched once if a version."),
]
Checkpoint = Annotated[
    str | None, typer.Option("--checkpoint", metavar="DIR", help="Checkpoint whose headers are read, never its data.")
]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"omni-scaffold {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def inspect(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="Registry key, model folder or module:Class.")],
    checkpoint: Checkpoint = None,
    vllm_omni: VllmOmni = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the answers.")] = Format.text,
    export_svg: Annotated[
        Path | None, typer.Option("--export-svg", metavar="FILE", help="Also keep the text report as an SVG.")
    ] = None,
) -> None:
    """Answer what an integration must know about a pipeline, each answer with file and line."""
    from scaffold.inspect import inspect_pipeline
    from scaffold.upstream import locate

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


@app.command()
def new(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the integration: a lower-case identifier.")],
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", metavar="PIPELINE", help="Pipeline to integrate; MODEL by default.")
    ] = None,
    checkpoint: Checkpoint = None,
    verl_omni: Annotated[
        str | None, typer.Option("--verl-omni", metavar="CHECKOUT", help="Checkout of verl-omni to write into.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Folder to write to, edits as a patch beside the tree.")
    ] = None,
    vllm_omni: VllmOmni = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="RELEASE", help="verl-omni release to write for with --out (default main)."),
    ] = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="FILE", help="Render this scaffold.toml instead of inspecting.")
    ] = None,
    date: Annotated[
        str | None, typer.Option("--date", metavar="MM/DD/YYYY", help="Date that documentation pages carry.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files, write nothing.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes as a diff, write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    export_svg: Annotated[
        Path | None, typer.Option("--export-svg", metavar="FILE", help="Also keep what is printed as an SVG.")
    ] = None,
) -> None:
    """Render the integration of a model and wire it into verl-omni."""
    from scaffold.new import NewRequest, plan_new
    from scaffold.new_text import print_result

    request = NewRequest(model, pipeline, checkpoint, vllm_omni, verl_omni, out, profile, spec, date, force)
    result = plan_new(request)
    if diff:
        typer.echo(result.plan.diff(), nl=False)
        return
    if dry_run:
        print_result(result, written=None, svg=export_svg)
        result.plan.check()
        return
    print_result(result, written=result.plan.commit(), svg=export_svg)


def main() -> NoReturn:
    """Run the command; errors of the user's are one line on stderr."""
    try:
        status = app(standalone_mode=False)
    except ScaffoldError as error:
        _fail(error.line, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; the next run finishes or undoes what was begun", 130)
    except BrokenPipeError:
        # The reader of a pipe has seen enough; Python would complain again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        _usage(error)
    sys.exit(status if isinstance(status, int) else 0)


def _usage(error: Exception) -> NoReturn:
    """Say what is wrong with the command line; typer keeps the exceptions for it to itself, under changing names."""
    say = getattr(error, "format_message", None)
    if say is None:
        raise error
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        typer.echo(context.get_help(), err=True)
        sys.exit(2)
    command = context.command_path if context is not None else "omni-scaffold"
    _fail(f"{say().rstrip('.')}; see {command} --help", 2)


def _fail(line: str, status: int) -> NoReturn:
    typer.echo("error: " + " ".join(line.split()), err=True)
    sys.exit(status)
