"""Prints the table of all pipelines by what `new` makes of them, without wrapping identifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from scaffold.grade import COMPLETE, PARTIAL, REFUSED, UNPROVEN
from scaffold.grade.models_page import DIFFUSERS
from scaffold.terminal.console import report_console, said

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

MEANS = {
    COMPLETE: "rendered whole",
    UNPROVEN: "rendered whole; `verify --level rollout` has to show it, or verl-omni lacks something",
    PARTIAL: "rendered with places to write",
    REFUSED: "not supported here",
    DIFFUSERS: "diffusers loads the denoiser, and its steps were not found: nothing is rendered",
    None: "not established",
}
UNKNOWN = "?"
# Width from which sentences fit beside the columns; below it, only their number is shown.
WIDE = 110


def print_overview(table: dict[str, Any], label: str, console: Console | None = None) -> None:
    """Print the table of ``overview``.

    Args:
        table: what ``overview`` returned.
        label: the version as the user named it.
        console: where to print; standard output by default.
    """
    if console is None:
        console = report_console()
    counts = table["upstream"]
    named = f"{len(table['pipelines'])} pipelines under {counts['registry_keys']} keys"
    console.print(said((f"vllm-omni {label}: {named}", "bold")))
    for grade, meaning in MEANS.items():
        rows = [found for found in table["pipelines"] if found["grade"] == grade]
        if rows:
            console.print()
            console.print(said((f"{grade or 'unknown'} ({len(rows)})", "bold"), f"  {meaning}"))
            console.print(_table(rows, wide=console.width >= WIDE))


def _table(rows: list[dict[str, Any]], *, wide: bool) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("pipeline", "makes", "prompt", "guidance"):
        table.add_column(name, no_wrap=name != "prompt", overflow="fold")
    left = any(found["left"] for found in rows)
    counted = left or any(found.get("needs") for found in rows)
    why = "why" if rows[0]["grade"] in (REFUSED, None) else ""
    last = "left to write" if left else "verl-omni lacks" if counted else why
    if last and (wide or counted):
        table.add_column(last, overflow="fold", justify="left" if wide else "right")
    for found in rows:
        cells = [[text] for text in _cells(found)]
        cells[0] = sorted(found["registry_keys"], key=lambda key: key != found["pipeline"])
        if last and (wide or counted):
            cells.append(_last(found, wide))
        table.add_row(*(Text("\n").join(said(line) for line in lines) for lines in cells))
    return table


def _cells(found: dict[str, Any]) -> list[str]:
    """Return pipeline, inputs and output, kind of prompt and guidance; unknown values are a question mark."""
    cfg = found["cfg"]
    media = [kind for kind in found["media"] or () if kind]
    guidance = UNKNOWN
    if cfg["branches"] is not None:
        guidance = "none" if cfg["branches"] == 1 else f"{cfg['branches']} {cfg['execution'] or UNKNOWN}"
    makes = found["modality"] or UNKNOWN
    prompt = " + ".join([*(found["prompt"]["kind"] or [UNKNOWN]), *media])
    return [found["pipeline"], makes, prompt, guidance]


def _last(found: dict[str, Any], wide: bool) -> list[str]:
    needed = {entry["what"]: entry["at"] for entry in found.get("needs") or []}
    stands = {what: f" (in the way stands {place})" for what, place in needed.items()}
    left = [f"- {entry['what']}{stands.pop(entry['what'], '')}" for entry in found["left"]]
    left += [f"- {what}{place}" for what, place in stands.items()]
    if not wide:
        count = len(found["left"]) or len(left)
        return [str(count) if count else ""]
    return left or ([found["verdict"]["reason"]] if found["grade"] in (REFUSED, None) else [""])
