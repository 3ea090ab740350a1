"""A pipeline in two versions of vllm-omni, compared."""

from __future__ import annotations

from typing import Annotated

import typer

from scaffold.cli.options import Format

ORDER = 40


def drift(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="Registry key, model folder or module:Class.")],
    after: Annotated[str, typer.Option("--to", metavar="VERSION|WHEEL|DIR|newest", help="The newer vllm-omni.")],
    before: Annotated[
        str | None,
        typer.Option("--from", metavar="VERSION|WHEEL|DIR", help="The older one; by default that of the package."),
    ] = None,
    package: Annotated[
        str | None, typer.Option("--package", metavar="PACKAGE", help="Package to look at; exit 1 if it is affected.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print what changed.")] = Format.text,
) -> None:
    """Compare a pipeline in two versions of vllm-omni: facts, the lines that rest on them, what breaks."""
    from scaffold.drift import DriftRequest, compare

    found = compare(DriftRequest(pipeline, before, after, package))
    if format is Format.json:
        import json

        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        from scaffold.drift.text import print_drift

        print_drift(found)
    if package is not None and found.affected is not False:
        raise typer.Exit(1)
