"""The table of all pipelines for a person, by verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PATHS = ("non_diffusers", "diffusers", "refused", None)
_MEANS = {
    "non_diffusers": "an integration can be rendered",
    "diffusers": "diffusers loads the denoiser: take the guide for diffusers models",
    "refused": "a step has no log-prob that FlowGRPO could train on",
    None: "not established",
}
UNKNOWN = "?"


def print_table(table: dict[str, Any], label: str, console: Console | None = None) -> None:
    """Print the table of ``inspect_all``.

    Args:
        table: what ``inspect_all`` returned.
        label: the version as the user named it.
        console: where to print; standard output by default.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console(highlight=False, emoji=False)
    counts = table["upstream"]
    console.print(Text(f"vllm-omni {label}: {counts['registry_keys']} keys, {counts['classes']} classes", "bold"))
    for path in PATHS:
        rows = [r for r in table["pipelines"] if r["verdict"]["path"] == path]
        if not rows:
            continue
        title = Text.assemble((f"{path or 'unknown'} ({len(rows)})", "bold"), f"  {_MEANS[path]}")
        shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
        names = ("Pipeline", "Denoiser", "Step", "Turns", "Guidance", "Why and where")
        for name, ratio in zip(names, (7, 7, 8, 3, 6, 11), strict=True):
            shown.add_column(name, ratio=ratio, overflow="fold")
        for row in rows:
            shown.add_row(*(Text(cell) for cell in cells(row)))
        console.print(shown)


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
    return ["\n".join([row["pipeline"], *(k for k in row["registry_keys"] if k != row["pipeline"])]), denoiser, step,
            turns, guidance, f"{why}{where}{sure}"]  # fmt: skip
