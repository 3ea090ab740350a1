"""A package carried to another vllm-omni, tool or spec."""

from __future__ import annotations

from typing import Annotated

import typer

from scaffold.cli.difference import show
from scaffold.cli.options import AllowVersionMismatch, Package, VllmOmni
from scaffold.interrupt import doing, leaving

ORDER = 50


def update(
    package: Package,
    vllm_omni: VllmOmni = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="VERSION|WHEEL|DIR",
            help="vllm-omni it was rendered from, if the recorded one is gone.",
        ),
    ] = None,
    spec: Annotated[bool, typer.Option("--spec", help="Render the edited scaffold.toml, without inspecting.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files, write nothing.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes as a diff, write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Merge also where the earlier state is unknown.")] = False,
    allow_version_mismatch: AllowVersionMismatch = False,
) -> None:
    """Carry a package to another vllm-omni or an edited spec, merged with what was edited by hand."""
    from scaffold.lifecycle.check_result import print_check
    from scaffold.lifecycle.text import print_update
    from scaffold.lifecycle.update import UpdateRequest, plan_update

    request = UpdateRequest(package, vllm_omni, base, spec, force, diff or dry_run, allow_version_mismatch)
    result = plan_update(request)
    if diff:
        show(result.plan.diff())
    if diff or dry_run:
        if not diff:
            print_update(result, written=None)
        result.plan.check()
        result.check_complete(written=False)
        return
    written = result.plan.commit()
    with leaving(f"{len(written)} files are written; next: run `omni-scaffold check {result.package.from_here}`"):
        print_update(result, written=written)
        with doing("checking the result"):
            clean = print_check(result.package)
    result.check_complete(written=True)
    if not clean:
        raise typer.Exit(1)
