"""The table of all pipelines for a person, by verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaffold.printable import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

PATHS = ("non_diffusers", "diffusers", "refused", None)
_MEANS = {
    "non_diffusers": "an integration can be rendered",
    "diffusers": "diffusers loads the denoiser: take the guide for diffusers models",
    "refused": "not supported here, for the reason given",
    None: "not established",
}
UNKNOWN = "?"
# Shares of what the columns leave that are as wide as their longest line.
COLUMNS = {"Pipeline": None, "Denoiser": None, "Step": 8, "Turns": 3, "Guidance": 6, "Why and where": 11}
# Below this, names of classes would be cut in a table; a paragraph a pipeline keeps them whole.
TABLE_WIDTH = 180


def print_table(table: dict[str, Any], label: str, console: Console | None = None) -> None:
    """Print the table of ``inspect_all``.

    Args:
        table: what ``inspect_all`` returned.
        label: the version as the user named it.
        console: where to print; standard output by default.
    """
    from rich.text import Text

    if console is None:
        from scaffold.inspect.report_console import report_console

        console = report_console()
    counts = table["upstream"]
    console.print(Text(f"vllm-omni {label}: {counts['registry_keys']} keys, {counts['classes']} classes", "bold"))
    show = _table if console.width >= TABLE_WIDTH else _paragraphs
    for path in PATHS:
        rows = [cells(row) for row in table["pipelines"] if row["verdict"]["path"] == path]
        if rows:
            title = Text.assemble((f"{path or 'unknown'} ({len(rows)})", "bold"), f"  {_MEANS[path]}")
            console.print(show(title, rows))


def _table(title: Text, rows: list[list[str]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    longest = [max(len(line) for cell in column for line in cell.splitlines()) for column in zip(*rows, strict=True)]
    for (name, ratio), width in zip(COLUMNS.items(), longest, strict=True):
        shown.add_column(name, ratio=ratio, overflow="fold", width=None if ratio else width)
    for row in rows:
        shown.add_row(*(Text(printable_lines(cell)) for cell in row))
    return shown


def _paragraphs(title: Text, rows: list[list[str]]) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text("\n").append_text(title)]
    for first, *others in rows:
        parts.append(Text("\n" + ", ".join(first.splitlines()), "bold"))
        for name, cell in zip(list(COLUMNS)[1:], others, strict=True):
            parts.append(
                Padding(Text.assemble((f"{name.lower()}: ", "dim"), ", ".join(cell.splitlines())), (0, 0, 0, 2))
            )
    return Group(*parts)


def cells(row: dict[str, Any]) -> list[str]:
    """The texts of a row's columns; what is not known is a question mark."""
    scheduler, cfg, verdict = row["scheduler"], row["cfg"], row["verdict"]
    denoiser = row["denoiser"]["class"] or UNKNOWN
    if row["denoiser"]["method"] not in (None, "", "forward"):
        denoiser += f".{row['denoiser']['method']}"
    if scheduler["inline"]:
        step = "written out in the loop"
    elif scheduler["call"]:
        step = f"{scheduler['call']}({', '.join(scheduler['arguments'] or [UNKNOWN])})"
        step += f"\n{scheduler['class']}" if scheduler["class"] else ""
    else:
        step = UNKNOWN
    turns = scheduler["steps"] or UNKNOWN
    turns += {"ascending": " up", "descending": " down"}.get(scheduler["direction"] or "", "")
    guidance = UNKNOWN
    if cfg["branches"] is not None:
        scales = ", ".join(f"{name} {UNKNOWN if v is None else v}" for name, v in (cfg["scales"] or {}).items())
        guidance = f"{cfg['branches']} {cfg['execution'] or UNKNOWN}" + (f"\n{scales}" if scales else "")
    where = f"{verdict['file'].rpartition('/')[2]}:{verdict['line']}" if verdict["file"] else ""
    sure = "" if verdict["confidence"] == "certain" else f" ~ {verdict['confidence']}"
    why = "" if verdict["path"] == "non_diffusers" else f"{verdict['reason']}\n"
    keys = [row["pipeline"], *(k for k in row["registry_keys"] if k != row["pipeline"])]
    return ["\n".join(map(printable, keys)), printable(denoiser), step, turns, guidance, f"{why}{where}{sure}"]
