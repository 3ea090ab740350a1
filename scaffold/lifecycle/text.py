"""What ``update`` and ``remove`` print: the tree, what the user should know, what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from scaffold.check import check_paths
from scaffold.terminal.console import SafeConsole, said

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scaffold.check import Finding
    from scaffold.lifecycle.changed_values import ChangedValue
    from scaffold.lifecycle.package import ScaffoldedPackage
    from scaffold.lifecycle.remove import Removal
    from scaffold.lifecycle.update import UpdateResult
    from scaffold.plan import Plan


def print_update(result: UpdateResult, *, written: tuple[str, ...] | None) -> None:
    """Print an update; ``written`` is None after a dry run."""
    old, new = result.package.spec, result.spec
    console = plain_console()
    console.print(
        said(
            (new.value("names.display"), "bold"),
            f"  from vllm-omni {old.value('upstream.version')} to {new.value('upstream.version')}, for verl-omni "
            f"{new.value('target.profile')}",
        )
    )
    _plan(console, result.plan, result.notes, result.values)
    merge = result.merge
    if merge.marked or merge.broken or merge.kept:
        return  # the error that follows says what is left to do
    console.print(said(_updated(result, written)))


def _updated(result: UpdateResult, written: tuple[str, ...] | None) -> str:
    count = len(result.plan.pending)
    if written is None and count:
        return f"dry run: {count} files would change; leave out --dry-run to write them"
    if not written:
        return "nothing to do: the package is in this state already"
    merged = f", {len(result.merge.merged)} of them merged with your edits" if result.merge.merged else ""
    package = result.package
    patched = package.checkout is None and not package.layout.external
    patch = "; in a checkout that has the older patch, compare both" if patched else ""
    there = shlex.quote(package.from_here)
    then = f"next: `omni-scaffold check {there}`, then `omni-scaffold verify {there}`"
    return f"updated {len(written)} files{merged}{patch}; {then}"


def print_removal(removal: Removal, *, written: tuple[str, ...] | None) -> None:
    """Print a removal; ``written`` is None after a dry run."""
    console = plain_console()
    console.print(said((removal.package.spec.value("names.display"), "bold"), f"  {removal.package.path}"))
    _plan(console, removal.plan, removal.notes)
    count = len(removal.plan.pending)
    if written is None:
        if not removal.undecided:
            console.print(f"dry run: {count} files would change; leave out --dry-run to remove the package")
    else:
        console.print(said(f"removed {removal.package.path}: {len(written)} files changed; {_after_removal(removal)}"))


def _after_removal(removal: Removal) -> str:
    if removal.package.checkout is not None or removal.package.layout.external:
        return "next: look at `git status` and commit it"
    return "next: where verl_omni.patch was applied, undo it with `git apply --reverse`"


def _plan(console: SafeConsole, plan: Plan, notes: Iterable[str], values: Iterable[ChangedValue] = ()) -> None:
    console.print()
    console.print(plan.tree(), end="")
    for value in values:
        console.print(said(str(value)))
    for note in notes:
        console.print(said(("note:", "yellow"), f" {note}"))
    console.print()


def plain_console() -> SafeConsole:
    """Return a console that does not wrap lines and survives a closed pipe."""
    return SafeConsole(soft_wrap=True)


SHOWN = 10


def findings_of(package: ScaffoldedPackage) -> tuple[Finding, ...]:
    """Return the findings of the rules in a package."""
    return check_paths([package.root / package.path]).findings


def print_findings(package: ScaffoldedPackage, findings: Sequence[Finding]) -> None:
    """Print the first findings and the command that shows all."""
    console = plain_console()
    for finding in findings[:SHOWN]:
        console.print(f"{finding.path}:{finding.line}: {finding.severity} {finding.rule} {finding.message}")
    if len(findings) > SHOWN:
        there = shlex.quote(package.from_here)
        console.print(f"and {len(findings) - SHOWN} more; run `omni-scaffold check {there}`")
