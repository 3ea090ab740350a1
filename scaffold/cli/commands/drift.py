"""A pipeline in two versions of vllm-omni, compared."""

from __future__ import annotations

from typing import Annotated

import typer

from scaffold.cli.answer import show_json
from scaffold.cli.options import Format

ORDER = 90


def drift(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PACKAGE_OR_PIPELINE", help="Folder of a package; or a registry key, model folder or module:Class."
        ),
    ],
    after: Annotated[str, typer.Option("--to", metavar="VERSION|WHEEL|DIR|newest", help="The newer vllm-omni.")],
    before: Annotated[
        str | None,
        typer.Option("--from", metavar="VERSION|WHEEL|DIR", help="The older one; a package knows its own."),
    ] = None,
    package: Annotated[
        str | None, typer.Option("--package", metavar="PACKAGE", help="Package of that pipeline to look at.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print what changed.")] = Format.text,
) -> None:
    """Compare a pipeline in two versions of vllm-omni.

    Exit 1 if the package that is named is affected.

    \b
    Example:
      omni-scaffold drift verl_omni/pipelines/foo_flow_grpo --to newest
    """
    from scaffold.lifecycle.drift import DriftRequest, compare

    found = compare(DriftRequest(target, before, after, package))
    if format is Format.json:
        show_json(found.to_json())
    else:
        from scaffold.lifecycle.drift.text import print_drift

        print_drift(found)
    if found.package is not None and found.affected is not False:
        raise typer.Exit(1)
