"""The inverse of ``new``."""

from __future__ import annotations

from typing import Annotated

import typer

from scaffold.cli.difference import show
from scaffold.cli.options import Package
from scaffold.interrupt import leaving

ORDER = 60


def remove(
    package: Package,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files, write nothing.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes as a diff, write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove edited files too.")] = False,
    keep_edited: Annotated[
        bool, typer.Option("--keep-edited", help="Keep edited files, remove everything else.")
    ] = False,
) -> None:
    """Undo `new`: take the package's files away and the edits back; about edited files you decide first."""
    from scaffold.lifecycle.remove import plan_remove
    from scaffold.lifecycle.text import print_removal

    removal = plan_remove(package, force=force, keep_edited=keep_edited, dry=diff or dry_run)
    if diff:
        show(removal.plan.diff())
    elif dry_run:
        print_removal(removal, written=None)
    if diff or dry_run:
        removal.check()
        return
    written = removal.commit()
    with leaving("the package is removed; nothing else is left to do"):
        print_removal(removal, written=written)
