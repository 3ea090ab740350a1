"""The inverse of ``new``."""

from __future__ import annotations

from typing import Annotated

import typer

from scaffold.cli.answer import show, show_json
from scaffold.cli.options import AnswerFormat, Diff, DryRun, Format, Package, one_output
from scaffold.terminal.interrupt import leaving
from scaffold.terminal.progress import VOICE

ORDER = 110


def remove(
    package: Package,
    dry_run: DryRun = False,
    diff: Diff = False,
    force: Annotated[bool, typer.Option("--force", help="Remove edited files too.")] = False,
    keep_edited: Annotated[
        bool, typer.Option("--keep-edited", help="Keep edited files, remove everything else.")
    ] = False,
    format: AnswerFormat = Format.text,
) -> None:
    """Undo `new`: delete its files and revert its edits.

    Nothing is removed before you decide about files that you edited.

    \b
    Example:
      omni-scaffold remove verl_omni/pipelines/foo_flow_grpo --dry-run
    """
    from scaffold.lifecycle.remove import plan_remove
    from scaffold.lifecycle.text import print_removal

    as_json = one_output(format, diff)
    removal = plan_remove(package, force=force, keep_edited=keep_edited, dry=diff or dry_run)
    if diff:
        show(removal.plan.diff())
    elif as_json and dry_run:
        show_json(removal.to_json(written=False))
    elif dry_run:
        print_removal(removal, written=None)
    if diff or dry_run:
        removal.check()
        return
    written = removal.commit()
    with leaving("the package is removed; nothing else is left to do"):
        if as_json:
            show_json(removal.to_json(written=True))
        elif not VOICE.quiet:
            print_removal(removal, written=written)
