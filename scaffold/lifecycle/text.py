"""What ``update`` and ``remove`` print: the tree, what the user should know, what to do next."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaffold.lifecycle.remove import Removal
    from scaffold.lifecycle.update import UpdateResult
    from scaffold.plan import Plan


def print_update(result: UpdateResult, *, written: tuple[str, ...] | None) -> None:
    """Print an update; ``written`` is None after a dry run."""
    old, new = result.package.spec, result.spec
    console = plain_console()
    console.print(
        f"[bold]{escape(str(new.value('names.display')))}[/]  from vllm-omni {old.value('upstream.version')} to "
        f"{new.value('upstream.version')}, for verl-omni {new.value('target.profile')}"
    )
    _plan(console, result.plan, result.notes)
    merge = result.merge
    if merge.marked or merge.broken or merge.kept:
        return  # the error that follows says what is left to do
    console.print(_updated(result, written))


def _updated(result: UpdateResult, written: tuple[str, ...] | None) -> str:
    count = len(result.plan.pending)
    if written is None:
        return f"dry run: {count} files would change; leave out --dry-run to write them"
    if not written:
        return "nothing to do: the package is in this state already"
    merged = f", {len(result.merge.merged)} of them merged with your edits" if result.merge.merged else ""
    package = result.package
    patch = "" if package.checkout is not None else "; in a checkout that has the older patch, compare both"
    then = f"next: run `omni-scaffold check {package.from_here}` and the tests in tests/pipelines"
    return f"updated {len(written)} files{merged}{patch}; {then}"


def print_removal(removal: Removal, *, written: tuple[str, ...] | None) -> None:
    """Print a removal; ``written`` is None after a dry run."""
    console = plain_console()
    console.print(f"[bold]{escape(str(removal.package.spec.value('names.display')))}[/]  {removal.package.path}")
    _plan(console, removal.plan, removal.notes)
    count = len(removal.plan.pending)
    if written is None:
        if not removal.undecided:
            console.print(f"dry run: {count} files would change; leave out --dry-run to remove the package")
    else:
        console.print(f"removed {removal.package.path}: {len(written)} files changed; {_after_removal(removal)}")


def _after_removal(removal: Removal) -> str:
    if removal.package.checkout is not None:
        return "next: look at `git status` and commit it"
    return "next: where verl_omni.patch was applied, undo it with `git apply --reverse`"


def _plan(console: Console, plan: Plan, notes: Iterable[str]) -> None:
    console.print()
    console.print(plan.tree(), end="", markup=False)
    for note in notes:
        console.print(f"[yellow]note:[/] {escape(note)}")
    console.print()


class _Console(Console):
    """Falls silent when the reader of a pipe has left; whether a person has to decide must still be said."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plain_console() -> Console:
    """Return a console that wraps nothing, and that a closed pipe does not stop."""
    return _Console(highlight=False, soft_wrap=True, emoji=False)
