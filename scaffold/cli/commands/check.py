"""The rules, on packages whoever wrote them."""

from __future__ import annotations

import os
import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli import completion
from scaffold.cli.answer import show, show_next
from scaffold.terminal.interrupt import AGAIN, doing, leaving
from scaffold.terminal.printable import printable

ORDER = 60


class CheckFormat(str, Enum):
    """Output formats of ``check``."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"


def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Packages, checkouts of verl-omni or single files; by default the one that you stand in.",
        ),
    ] = None,
    format: Annotated[CheckFormat, typer.Option("--format", help="How to print the findings.")] = CheckFormat.text,
    fix: Annotated[bool, typer.Option("--fix", help="Apply safe fixes.")] = False,
    unsafe_fixes: Annotated[bool, typer.Option("--unsafe-fixes", help="Apply the other fixes too.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what the fixes change, write nothing.")] = False,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="RULES",
            help="Run only these: OSC206, OSC2, a name.",
            autocompletion=completion.rules,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="RULES", help="Leave these out.", autocompletion=completion.rules),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Leave out the findings that FILE lists.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", metavar="FILE", help="List the findings in FILE.")
    ] = None,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Look at no settings and no baseline of a pyproject.toml.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option("--explain", metavar="RULE", help="Say what a rule is about.", autocompletion=completion.rules),
    ] = None,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="List all rules.")] = False,
    statistics: Annotated[bool, typer.Option("--statistics", help="Count the findings of each rule instead.")] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 even where there are findings.")] = False,
    output_file: Annotated[
        Path | None, typer.Option("--output-file", "-o", metavar="FILE", help="Write the findings to FILE instead.")
    ] = None,
) -> None:
    """Lint integrations against the checklist and the known bugs.

    Text is read, nothing is imported or executed. Exit 1 where something is found.

    \b
    Examples:
      omni-scaffold check verl_omni/pipelines/foo_flow_grpo
      omni-scaffold check --select OSC2 --statistics
    """
    from scaffold.check.command import CheckRequest, run_check

    left = None
    if (fix or unsafe_fixes) and not diff:
        left = f"all fixes are written or none, see `git diff`; {AGAIN}"
    request = CheckRequest(
        paths=tuple(paths or ()),
        format=format.value,
        fix=fix,
        unsafe_fixes=unsafe_fixes,
        diff=diff,
        select=tuple(select or ()),
        ignore=tuple(ignore or ()),
        baseline=baseline,
        write_baseline=write_baseline,
        explain=explain,
        list_rules=list_rules,
        statistics=statistics,
        exit_zero=exit_zero,
        output_file=output_file,
        isolated=isolated,
    )
    with doing("checking"), leaving(left):
        outcome = run_check(request, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    if diff:
        show(outcome.text)
    else:
        typer.echo(outcome.text, nl=False)
    if outcome.note:
        typer.echo(printable(outcome.note), err=True)
    if format is CheckFormat.text and not (explain or list_rules or diff):
        then = f"`omni-scaffold verify {shlex.quote(outcome.package or 'PACKAGE')}` runs it on a tiny model"
        if write_baseline:
            then = f"`omni-scaffold check --baseline {write_baseline}` leaves them out"
        elif outcome.found:
            then = (
                "`--explain RULE` tells about a rule, `--fix` applies the safe fixes, and a comment "
                "`# omni-scaffold: ignore[RULE] reason` hides one place"
            )
        show_next(then)
    raise typer.Exit(outcome.status)
