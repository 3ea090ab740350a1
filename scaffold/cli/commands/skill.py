"""A file that tells coding agents which command serves when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli.answer import show, show_json
from scaffold.cli.options import AnswerFormat, Diff, DryRun, Format, one_output
from scaffold.errors import ConflictError, ScaffoldError
from scaffold.terminal.progress import VOICE

ORDER = 120
SCHEMA = 1
# Folders that agents read; a link among them counts as its target, which comes first.
FOLDERS = (".agents/skills", ".claude/skills")


def skill(
    verl_omni: Annotated[
        Path | None,
        typer.Option("--verl-omni", metavar="CHECKOUT", help="Checkout to write into; by default the one around you."),
    ] = None,
    dry_run: DryRun = False,
    diff: Diff = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite another file.")] = False,
    format: AnswerFormat = Format.text,
) -> None:
    """Write a skill file for coding agents into a checkout.

    It says which command serves when, and what to leave to a person.

    \b
    Example:
      omni-scaffold skill --verl-omni ~/verl-omni
    """
    from scaffold.files.reading import read_text
    from scaffold.files.resources import PACKAGE_ROOT
    from scaffold.plan.change import FileState, PlannedChange
    from scaffold.plan.output import states
    from scaffold.plan.plan import Plan
    from scaffold.target import Checkout

    as_json = one_output(format, diff)
    checkout = Checkout.open(verl_omni) if verl_omni is not None else Checkout.above(Path.cwd())
    if checkout is None:
        raise ScaffoldError("say where the skill goes", hint="give --verl-omni CHECKOUT, or run this inside of one")
    folders = [name for name in FOLDERS if (checkout.root / name).is_dir() and not (checkout.root / name).is_symlink()]
    path = f"{(folders or FOLDERS[1:])[0]}/omni-scaffold/SKILL.md"
    after = FileState(read_text(PACKAGE_ROOT / "skill" / "SKILL.md").encode())
    before = states(checkout.root, [path])[path]
    other = before is not None and before != after
    change = PlannedChange(path, before, after, "differs" if other else None)
    plan = Plan(checkout.root, (change,), force, ConflictError)
    if diff:
        show(plan.diff())
    written = () if diff or dry_run else plan.commit()
    if as_json:
        show_json({"schema": SCHEMA, "written": bool(written), **plan.to_json()})
    elif not diff and not (written and VOICE.quiet):
        typer.echo(plan.tree(), nl=False)
    plan.check()
