"""A package carried to another vllm-omni, tool or spec."""

from __future__ import annotations

from typing import Annotated

import typer

from scaffold.cli.answer import show, show_json
from scaffold.cli.options import (
    AllowVersionMismatch,
    AnswerFormat,
    Diff,
    DryRun,
    Format,
    Package,
    Packaged,
    Preset,
    VllmOmni,
    one_output,
)
from scaffold.terminal.interrupt import doing, leaving
from scaffold.terminal.progress import VOICE

ORDER = 100


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
    preset: Preset = None,
    packaged: Packaged = False,
    dry_run: DryRun = False,
    diff: Diff = False,
    force: Annotated[bool, typer.Option("--force", help="Merge also where the earlier state is unknown.")] = False,
    allow_version_mismatch: AllowVersionMismatch = False,
    format: AnswerFormat = Format.text,
) -> None:
    """Carry a package to another vllm-omni or an edited spec.

    What was edited by hand is merged. Exit 4 where a person has to decide.

    \b
    Examples:
      omni-scaffold update verl_omni/pipelines/foo_flow_grpo --vllm-omni 0.30.0
      omni-scaffold update verl_omni/pipelines/foo_flow_grpo --spec --diff
    """
    from scaffold.lifecycle.text import findings_of, print_findings, print_update
    from scaffold.lifecycle.update import UpdateRequest, plan_update

    as_json = one_output(format, diff)
    dry, mismatch = diff or dry_run, allow_version_mismatch
    request = UpdateRequest(package, vllm_omni, base, spec, force, dry, mismatch, preset, packaged)
    result = plan_update(request)
    if diff:
        show(result.plan.diff())
    if diff or dry_run:
        if as_json:
            show_json(result.to_json(written=False))
        elif not diff:
            print_update(result, written=None)
        result.plan.check()
        result.check_complete(written=False)
        return
    written = result.plan.commit()
    with leaving(f"{len(written)} files are written; next: run `omni-scaffold check {result.package.from_here}`"):
        if not as_json and not VOICE.quiet:
            print_update(result, written=written)
        with doing("checking the result"):
            found = findings_of(result.package)
        if as_json:
            from scaffold.check.formats.json_format import finding_json

            show_json({**result.to_json(written=True), "findings": [finding_json(finding) for finding in found]})
        else:
            print_findings(result.package, found)
    result.check_complete(written=True)
    if any(finding.severity == "error" for finding in found):
        raise typer.Exit(1)
