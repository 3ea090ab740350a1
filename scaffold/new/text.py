"""What ``new`` prints: the tree, its basis, what to do next."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.table import Table

from scaffold.files.layout import layout_of
from scaffold.files.reading import expanded
from scaffold.grade import grade_of, is_ported
from scaffold.grade.proof import RUN
from scaffold.new.plan import NewResult
from scaffold.new.recorded import from_here
from scaffold.spec import IntegrationSpec
from scaffold.terminal.console import SafeConsole, said


def print_result(result: NewResult, *, written: tuple[str, ...] | None, svg: Path | None = None) -> None:
    """Print the result of ``new``; ``written`` is None after a dry run."""
    console = SafeConsole(soft_wrap=svg is None, record=svg is not None, width=110 if svg else None)
    spec = result.spec
    console.print(
        said(
            (spec.value("names.display"), "bold"),
            f"  {spec.value('upstream.class')} of vllm-omni {spec.value('upstream.version')} for verl-omni "
            f"{spec.value('target.profile')}",
        )
    )
    console.print()
    console.print(result.plan.tree(), end="")
    console.print()
    table = Table(box=None, show_header=False, pad_edge=False)
    for label, value in _facts(result):
        table.add_row(said((label, "dim")), said(value))
    console.print(table)
    _print_missing(console, spec)
    for note in result.notes:
        console.print(said(("note:", "yellow"), f" {note}"))
    console.print()
    for line in _conclusion(result, written).splitlines():
        console.print(said(line))
    if svg is not None:
        console.save_svg(str(svg), title="omni-scaffold new")


NEVER_RUN = ("never run", "released weights, their tokenizer, a whole training, more than one GPU")


def _facts(result: NewResult) -> list[tuple[str, str]]:
    spec = result.spec
    loads = [("checkpoint", result.filled)] if result.filled is not None else []
    if is_ported(spec):
        return [("grade", grade_of(spec)), ("because", str(spec.value("grade.reason"))), *loads, NEVER_RUN]
    rules = spec.value("checkpoint.rules") or []
    counts = {op: sum(rule["op"] == op for rule in rules) for op in ("rename", "split", "join", "drop")}
    remap = ", ".join(f"{n} {op}{'' if n == 1 else 's'}" for op, n in counts.items() if n or op in ("rename", "drop"))
    steps = {"n": "n steps", "n-1": "n - 1 steps"}.get(str(spec.value("schedule.steps")), "steps unknown")
    offset = spec.value("schedule.request_offset")
    compensation = f", upstream is asked for {offset:+d}" if offset else ""
    return [
        ("grade", f"{grade_of(spec)}: {spec.value('grade.reason') or RUN}"),
        ("schedule", f"{steps} for n asked{compensation}, shift {spec.value('schedule.shift')}"),
        ("guidance", ", ".join(f"{name}={value}" for name, value in spec.value("cfg.defaults").items())),
        ("key remap", remap),
        ("trained", trained(spec)),
        *loads,
        NEVER_RUN,
    ]


def trained(spec: IntegrationSpec) -> str:
    """Return what the scripts train."""
    if spec.value("lora.sync") == "none" or not spec.value("lora.rank"):
        return "all parameters" if is_ported(spec) else f"parameters of {', '.join(spec.value('lora.trainable'))}"
    return f"LoRA of rank {spec.value('lora.rank')} on {len(spec.value('lora.targets'))} kinds of projection"


def _print_missing(console: SafeConsole, spec: IntegrationSpec) -> None:
    """Print what a person must still write and what VeRL-Omni must support, as in the package's README."""
    missing, needs = spec.value("grade.missing") or [], spec.value("grade.needs") or []
    if missing or needs:
        console.print()
    if missing:
        console.print(said(("still to write", "bold"), f" ({len(missing)}):"))
    for entry in missing:
        console.print(said(f"  {entry['where']}: {entry['what']} ", (f"({entry['at']})", "dim")))
    if needs:
        console.print(said(("needs of verl-omni", "bold"), f" ({len(needs)}):"))
    for entry in needs:
        console.print(said(f"  {entry['at']}: {entry['what']}"))


def _conclusion(result: NewResult, written: tuple[str, ...] | None) -> str:
    count = len(result.plan.pending)
    if not count:
        return "nothing to do: every file is already there"
    if written is None:
        then = "" if result.plan.conflicts else "; leave out --dry-run to write them"
        return f"dry run: {count} files would change{then}"
    if not written:
        return "nothing to do: every file is already there"
    root = result.plan.root
    patch = next((change.path for change in result.plan.changes if change.path.endswith(".patch")), None)
    lines = [f"wrote {len(written)} files"]
    lines += [f"in a checkout, `git apply {_word(root / patch)}` brings them in"] if patch else []
    first = "once VeRL-Omni carries that" if result.spec.value("grade.refuses") else "to train"
    lines.append(f"{first}: {from_here(root, str(result.spec.value('target.example_readme')))}")
    external = layout_of(result.spec.sections["target"]).external
    package = _word(from_here(root, "") if external else result.from_here)
    loaded = result.checkpoint is not None and not str(result.filled).startswith("not known")
    given = f" --checkpoint {_word(result.checkpoint)}" if loaded and expanded(str(result.checkpoint)).is_dir() else ""
    install = f"`pip install -e {package}`, " if external else ""
    lines.append(f"next: {install}`omni-scaffold check {package}`, then `omni-scaffold verify {package}{given}`")
    return "\n".join(lines)


def _word(path: object) -> str:
    return shlex.quote(str(path))
