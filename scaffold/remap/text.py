"""The map and its proof for a person: rows folded by layer, a line for each check, the first offenders."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from scaffold.remap.proof import Offender, Proof
from scaffold.remap.table import Row, rendered_table
from scaffold.terminal.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 10
WIDTH = 160  # in a pipe
SAID = {
    "covers": "every key is taken, or left out for a stated reason",
    "fills": "every parameter is filled",
    "injective": "no two keys become one parameter",
    "no_dead_rule": "every rule matches a key",
    "invertible": "what is saved has the checkpoint's names",
    "shapes": "shapes are equal or add up",
    "engine": "no two names are exchanged",
}


def print_proof(title: str, proof: Proof, notes: Iterable[str], console: Console | None = None) -> None:
    """Print the map, the proof and what is wrong."""
    console = console or wide_console()
    counts = proof.counts
    console.print(printable(f"{title} on {proof.headers.source}"), style="bold")
    console.print(
        f"{counts['checkpoint']} keys: {counts['mapped']} mapped, {counts['ignored']} ignored, "
        f"{counts['unexplained']} unexplained; {counts['parameters']} parameters, {counts['unfilled']} unfilled"
    )
    for note in notes:
        console.print(f"note: {printable(note)}")
    print_rows(rendered_table(proof.key_map, proof.headers), console)
    print_checks(proof.outcomes, console)
    for line in offender_lines(proof.offenders, SHOWN):
        console.print(line, style="red")
    failed = [check for check, outcome in proof.outcomes.items() if outcome is False]
    said = f"the map does not hold: {', '.join(failed)}" if failed else "the map holds, as far as names and shapes tell"
    console.print(said, style="bold")


def wide_console() -> Console:
    """Return a console for a table that may be piped."""
    from scaffold.terminal.console import SafeConsole

    return SafeConsole(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)


def offender_lines(offenders: tuple[Offender, ...], limit: int) -> list[str]:
    """Return the first offenders as lines, those of each check in turn, with the name that was probably meant."""
    queues: dict[str, list[Offender]] = {}
    for offender in offenders:
        queues.setdefault(offender.check, []).append(offender)
    ordered = [queue[i] for i in range(limit) for queue in queues.values() if i < len(queue)][:limit]
    lines = []
    for offender in ordered:
        meant = f"; the nearest unmatched name of that shape is {offender.suggestion!r}" if offender.suggestion else ""
        lines.append(printable(f"{offender.check}: {offender.message}{meant}"))
    if len(offenders) > len(ordered):
        lines.append(f"and {len(offenders) - len(ordered)} more")
    return lines


def print_rows(rows: Iterable[Row], console: Console) -> None:
    """Print the mapping of keys, with dropped keys dimmed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("In the checkpoint", overflow="fold")
    table.add_column("In training", overflow="fold")
    table.add_column("Tensors", justify="right")
    for row in rows:
        note = f" ({row.note})" if row.note else ""
        target = f"{row.target}{note}" if row.target is not None else f"ignored: {row.reason}"
        source = row.source + ("…" if row.target is None and row.source.endswith(".") else "")
        style = "" if row.target is not None else "dim"
        table.add_row(Text(printable(source)), Text(printable(target)), f"{row.count:,}", style=style)
    console.print(table)


def print_checks(outcomes: Mapping[str, bool | None], console: Console) -> None:
    """Print a line for each check that was made."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    marks = {True: Text("holds", "green"), False: Text("FAILS", "bold red")}
    for check, outcome in outcomes.items():
        if outcome is not None:
            table.add_row(check, marks[outcome], SAID[check])
    console.print(table)
