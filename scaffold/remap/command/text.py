"""The map and its proof for a person: rows folded by layer, a line for each check, the first offenders."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scaffold.printable import printable
from scaffold.remap.command.request import RemapResult
from scaffold.remap.proof import CHECKS, Offender, Proof
from scaffold.remap.table import rendered_table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SHOWN = 10
WIDTH = 160  # of what is piped
SAID = {
    "covers": "every key is mapped, or ignored for a stated reason",
    "fills": "every parameter is filled",
    "injective": "no two keys become one parameter",
    "no_dead_rule": "every rule matches a key",
    "invertible": "the inverse gives back the checkpoint's names",
    "shapes": "shapes and dtypes agree",
    "engine": "what the actor sends lands where the checkpoint's own key does",
    "lora": "every LoRA target takes effect in the engine",
}


def print_result(result: RemapResult, console: Console | None = None) -> None:
    """Print the map, the proof and what is wrong."""
    from scaffold.console import SafeConsole

    console = console or SafeConsole(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
    proof, counts = result.proof, result.proof.counts
    at = f" on {proof.headers.source}" if proof.stated else ""
    console.print(printable(f"{result.title}{at}"), style="bold")
    if proof.stated:
        console.print(
            f"{counts['checkpoint']} keys: {counts['mapped']} mapped, {counts['ignored']} ignored, "
            f"{counts['unexplained']} unexplained; {counts['parameters']} parameters, {counts['unfilled']} unfilled"
        )
    for note in result.notes:
        console.print(f"note: {printable(note)}")
    if proof.stated:
        console.print(_rows(proof))
    console.print(_checks(proof))
    if result.unused:
        console.print(f"\nrules of upstream's loader that match no key here ({len(result.unused)}):")
        for rule in result.unused:
            console.print(f"  {printable(rule)}")
    for line in finding_lines(result):
        console.print(line, style="red")
    console.print(_verdict(proof), style="bold")


def finding_lines(result: RemapResult) -> list[str]:
    """Return what is wrong: the cause and how much follows from it, else the first offenders."""
    if result.cause is None:
        return offender_lines(result.proof.offenders, SHOWN)
    follow: dict[str, int] = {}
    for offender in result.proof.offenders:
        if offender is not result.cause:
            follow[offender.check] = follow.get(offender.check, 0) + 1
    counted = ", ".join(f"{count} of {check}" for check, count in follow.items())
    line = offender_lines((result.cause,), 1)
    return [*line, f"all else follows from it, or shows only once it is mended: {counted}"] if follow else line


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


def _verdict(proof: Proof) -> str:
    if not proof.stated:
        said = {True: "the LoRA targets are proved", False: "the LoRA targets do not hold", None: "nothing is proved"}
        return f"{said[proof.lora]}; unknown here: {', '.join(CHECKS)}, engine"
    failed = [check for check in CHECKS if not proof.passes(check)]
    failed += [side for side in ("engine", "lora") if getattr(proof, side) is False]
    unknown = [side for side in ("engine", "lora") if getattr(proof, side) is None]
    if failed:
        return f"the map does not hold: {', '.join(failed)}"
    return f"nothing speaks against the map; unknown: {', '.join(unknown)}" if unknown else "the map is proved"


def _rows(proof: Proof) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("In the checkpoint", overflow="fold")
    table.add_column("In training", overflow="fold")
    table.add_column("Tensors", justify="right")
    for row in rendered_table(proof.key_map, proof.headers):
        note = f" ({row.note})" if row.note else ""
        target = f"{row.target}{note}" if row.target is not None else f"ignored: {row.reason}"
        source = row.source + ("…" if row.target is None and row.source.endswith(".") else "")
        style = "" if row.target is not None else "dim"
        table.add_row(Text(printable(source)), Text(printable(target)), f"{row.count:,}", style=style)
    return table


def _checks(proof: Proof) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    outcomes = proof.outcomes | {"engine": proof.engine, "lora": proof.lora}
    marks = {True: Text("holds", "green"), False: Text("FAILS", "bold red"), None: Text("unknown", "yellow")}
    for check, outcome in outcomes.items():
        table.add_row(check, marks[outcome], SAID[check])
    return table
