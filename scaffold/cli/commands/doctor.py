"""What of this machine the commands need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli.answer import show_json
from scaffold.cli.options import Format

ORDER = 10


def doctor(
    checkout: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CHECKOUT]", help="verl-omni whose pins count; by default the one above this folder, if any."
        ),
    ] = None,
    package: Annotated[
        Path | None,
        typer.Option(
            "--package", metavar="PACKAGE", help="Import this package, as verl-omni does: are both registries reached?"
        ),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Build the environments that are missing or out of date.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How to print what was found.")] = Format.text,
) -> None:
    """Check what the commands need; say how to get what is missing.

    Exit 1 if something that is present does not fit; what is absent is not an error.

    \b
    Examples:
      omni-scaffold doctor
      omni-scaffold doctor ~/verl-omni --fix
      omni-scaffold doctor --package src/foo_flow_grpo
    """
    import os

    from scaffold.doctor import buildable_versions, examine, examine_package, to_json
    from scaffold.target import Checkout
    from scaffold.terminal.progress import step

    named = checkout or os.environ.get("VERL_OMNI_SRC")
    found = Checkout.above(Path.cwd()) if checkout is None else None
    if found is None and named:
        found = Checkout.open(named)
    if fix:
        from scaffold.cli.commands.env import build

        build(buildable_versions(found))
    with step("looking at this machine"):
        findings = examine(found) if package is None else examine_package(package)
    if format is Format.json:
        show_json(to_json(findings))
    else:
        from scaffold.doctor.examine import print_findings

        print_findings(findings)
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(1)
