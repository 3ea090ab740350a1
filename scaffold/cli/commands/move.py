"""A package taken out of a fork of verl-omni."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from scaffold.cli.answer import show_json, show_next
from scaffold.cli.options import AnswerFormat, DryRun, Format, Package
from scaffold.terminal.interrupt import leaving
from scaffold.terminal.progress import VOICE

ORDER = 105


def move(
    package: Package,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder that gets the project.")],
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what lies there.")] = False,
    format: AnswerFormat = Format.text,
) -> None:
    """Take a package out of a checkout into a project of its own.

    Your edits come along; the checkout stays as it is until you `remove` the package there.

    \b
    Example:
      omni-scaffold move verl_omni/pipelines/foo_flow_grpo --out ~/foo
    """
    from scaffold.lifecycle.move import plan_move
    from scaffold.terminal.printable import printable, printable_lines

    found = plan_move(package, out, force=force, dry=dry_run)
    if dry_run:
        found.plan.check()
        written: tuple[str, ...] = ()
    else:
        written = found.plan.commit()
    with leaving(f"{len(written)} files are written; nothing else is left to do"):
        if format is Format.json:
            show_json(found.to_json(written=not dry_run))
        elif not VOICE.quiet:
            typer.echo(printable_lines(found.plan.tree()), nl=False)
            if found.merged:
                typer.echo(printable(f"with your edits: {', '.join(found.merged)}"))
            place = shlex.quote(found.package.from_here)
            then = f"`pip install -e {shlex.quote(out)}`, then `omni-scaffold remove {place}` in the fork"
            show_next(then if not dry_run else f"leave out --dry-run to write {len(found.plan.pending)} files")
    found.check_complete()
