"""The report for a person: question, answer, where the source says so, and a clear mark on what is unknown."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.inspect.facts import Fact
from scaffold.inspect.report import ANSWERS, Report, shown_details
from scaffold.terminal.printable import printable
from scaffold.terminal.progress import VOICE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, RenderableType
    from rich.text import Text
if TYPE_CHECKING:
    from scaffold.inspect.facts import Evidence


# Places in few words: each file under the shortest name that is its own, the lines of a file together.

SHOWN = 2


def short_names(files: Iterable[str]) -> dict[str, str]:
    """The shortest end of each path that no other path has, in the order of the paths."""
    paths = list(dict.fromkeys(files))
    names = {}
    for path in paths:
        parts = path.split("/")
        for length in range(1, len(parts) + 1):
            name = "/".join(parts[-length:])
            if not any(other != path and f"/{other}".endswith(f"/{name}") for other in paths):
                break
        names[path] = name
    return names


def places(evidence: Sequence[Evidence], names: dict[str, str]) -> list[str]:
    """One text a file, such as ``pipeline.py:12, 40``, of the first places; the last says how many are left out."""
    lines: dict[str, list[int]] = {}
    for place in evidence[:SHOWN]:
        lines.setdefault(names[place.file], []).append(place.line)
    texts = [f"{name}:{', '.join(map(str, dict.fromkeys(numbers)))}" for name, numbers in lines.items()]
    if len(evidence) > SHOWN:
        texts[-1] += f" (+{len(evidence) - SHOWN})"
    return texts


UNKNOWN_MARK = "? unknown"
LIKELY_MARK = "~"
HANDED_IN = "none of its own: it is handed in"
GAP = 2
# An answer that has less room than this is followed by its places; else they stand in a column of their own.
ANSWER_ROOM = 36
_QUESTIONS = {
    "prompt": "What does it read of a request?",
    "edit": "What does it do with the images that a request brings?",
    "denoiser": "What predicts, and from what?",
    "cfg": "How is guidance applied?",
    "scheduler": "Which schedule, and how is a step taken?",
    "trajectory": "Are the steps kept?",
    "checkpoint": "Which files, and how are keys renamed?",
    "layers": "What are the layer classes?",
    "tokens": "Where do special tokens come from?",
    "vae": "Which autoencoder?",
    "latents": "How do latents map to the image?",
}
_VERDICT_STYLE = {"non_diffusers": "green", "diffusers": "yellow", "refused": "red"}


def print_report(
    report: Report,
    svg: Path | None = None,
    console: Console | None = None,
    *,
    options: Sequence[str] = (),
    asked: str | None = None,
) -> None:
    """Print a report; with ``svg``, also keep it as a picture.

    Args:
        report: what ``inspect_pipeline`` returned.
        svg: file to write the same text to as an SVG.
        console: where to print; standard output by default.
        options: what `new` has to be told to read the same source and the same checkpoint.
        asked: the pipeline as it was asked for.
    """
    if console is None:
        from scaffold.terminal.console import report_console

        console = report_console(picture=svg is not None)
    for part in render(report, console.width, options, asked):
        console.print(part)
    if svg is not None:
        console.save_svg(str(svg), title=f"omni-scaffold inspect {report.upstream.pipeline}")


def render(report: Report, width: int, options: Sequence[str] = (), asked: str | None = None) -> list[RenderableType]:
    """The parts of the text report, in order, for a page of ``width`` columns."""
    from rich.text import Text

    from scaffold.terminal.console import said

    upstream = report.upstream
    head = said((upstream.pipeline, "bold"), f"  vllm-omni {upstream.label}  {upstream.module}")
    if upstream.registry_keys:
        head.append("\n").append_text(said(f"registered as {', '.join(upstream.registry_keys)}"))
    path, reason = str(report.verdict["path"] or "unknown"), printable(report.verdict["reason"] or "")
    head.append_text(
        Text.assemble(
            "\nverdict ",
            (path, f"bold {_VERDICT_STYLE.get(path, 'red')}"),
            f"  {reason}",
        )
    )
    for place in report.fact("verdict.path").evidence[:1]:
        head.append("\n").append_text(said((f"{place.file}:{place.line}", "cyan")))
    parts: list[RenderableType] = [head, *_questions(report, width)]
    if report.headers is not None:
        parts.append(_headers(report.headers))
    parts += [said((f"{question} was not answered: {error}", "yellow")) for question, error in report.failures.items()]
    parts.append(_summary(report, options, asked))
    return parts


def _questions(report: Report, width: int) -> Iterator[RenderableType]:
    """A heading and a grid a question; last the files that the places are in, where a name is not the whole path."""
    from rich.table import Table
    from rich.text import Text

    facts = [(key.removeprefix(ANSWERS), fact) for key, fact in report.facts.items() if key.startswith(ANSWERS)]
    order = {key.partition(".")[0]: i for i, (key, _) in enumerate(facts)}
    facts += [row for row in shown_details(report.facts) if row[1].confidence != "unknown"]
    facts.sort(key=lambda row: order[row[0].partition(".")[0]])
    names = short_names(place.file for _, fact in facts for place in fact.evidence)
    none = {"scheduler.class": HANDED_IN} if report.value("scheduler.call") is not None else {}
    rows = [
        (*key.partition(".")[::2], _answer(fact, none.get(key, "none")), places(fact.evidence, names))
        for key, fact in facts
    ]
    label_width = max(len(name or question) for question, name, _, _ in rows) + GAP
    place_width = max((len(text) for *_, texts in rows for text in texts), default=0)
    apart = width - label_width - place_width - 2 * GAP >= ANSWER_ROOM
    for question, group in groupby(rows, key=lambda row: row[0]):
        yield Text(f"\n{_QUESTIONS.get(question, question)}", "bold")
        grid = Table.grid(padding=(0, GAP, 0, 0), expand=True)
        grid.add_column(width=label_width)
        grid.add_column(ratio=1, overflow="fold")
        if apart:
            grid.add_column(width=place_width, no_wrap=True, style="cyan")
        for _, name, answer, texts in group:
            label = Text(f"  {name or question}")
            if apart:
                grid.add_row(label, answer, Text("\n".join(texts)))
            else:
                between = "\n" if "\n" in answer.plain else "  "
                grid.add_row(label, answer.append(f"{between}{'  '.join(texts)}", "cyan") if texts else answer)
        yield grid
    listed = [path for path, name in names.items() if path != name]
    if listed:
        yield Text("\nFiles", "bold")
        yield Text("\n".join(f"  {path}" for path in listed), "cyan")
    yield Text()


def _answer(fact: Fact, none: str) -> Text:
    """The answer as words; ``none`` is what an answer without a value is called."""
    from rich.text import Text

    if fact.confidence == "unknown":
        return Text(UNKNOWN_MARK, style="bold yellow")
    at_itself = any(fact.value == f"{place.file}:{place.line}" for place in fact.evidence)
    text = Text("" if at_itself else none if fact.value is None else _spell(fact.value))
    if fact.confidence == "likely":
        text.append(f"  {LIKELY_MARK} likely", style="yellow")
    return text


def _spell(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        if not value:
            return "none"
        if all(isinstance(v, list) and len(v) in (2, 3) and all(isinstance(x, (str, int)) for x in v) for v in value):
            return "\n".join(_arrow(v) for v in value)
        return ", ".join(_spell(v) for v in value)
    if isinstance(value, dict):
        return "\n".join(f"{k}: {'?' if v is None else _inline(v)}" for k, v in value.items()) if value else "none"
    plain = not isinstance(value, str) or (value.isprintable() and value.strip() == value != "")
    return str(value) if plain else repr(value)


def _arrow(rule: list[Any]) -> str:
    if len(rule) == 2:
        return f"{rule[0]!s} → {rule[1] or '(cut)'}"
    return f"{rule[1]} → {rule[0]} [{rule[2]}]"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_spell(v)}" for k, v in value.items() if v is not None)
    return _spell(value)


def _headers(headers: Any) -> RenderableType:
    """Files, tensor counts, bytes, dtypes, and key names folded by layer."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from scaffold.checkpoint import fold

    files = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Checkpoint headers", title_justify="left")
    files.add_column("File", overflow="fold")
    files.add_column("Tensors", justify="right")
    files.add_column("Bytes", justify="right")
    for file in headers.files:
        files.add_row(Text(printable(file.name)), f"{file.tensors:,}", f"{file.data_bytes:,}")
    tensors = headers.tensors
    counts: dict[str, int] = {}
    for tensor in tensors.values():
        counts[tensor.dtype] = counts.get(tensor.dtype, 0) + 1
    dtypes = ", ".join(f"{count:,} {dtype}" for dtype, count in sorted(counts.items()))
    total = Text(f"{len(tensors):,} tensors, {headers.total_bytes:,} bytes, {dtypes or 'no dtypes'}")
    names = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    names.add_column("Keys, folded by layer", overflow="fold")
    names.add_column("Count", justify="right")
    for folded in fold(tensors):
        names.add_row(Text(printable(folded.pattern)), f"{folded.count:,}")
    return Group(files, total, names)


def _summary(report: Report, options: Sequence[str], asked: str | None) -> RenderableType:
    from rich.text import Text

    answers = [f for k, f in report.facts.items() if k.startswith(ANSWERS)]
    unknown = sum(f.confidence == "unknown" for f in answers)
    likely = sum(f.confidence == "likely" for f in answers)
    text = Text(f"{len(answers)} answers: {len(answers) - unknown - likely} certain, {likely} likely, ")
    text.append(f"{unknown} unknown", style="bold yellow" if unknown else "")
    if not VOICE.quiet:
        text.append(f"\nnext: {_next(report, options, asked)}")
    return text


def _next(report: Report, options: Sequence[str], asked: str | None) -> str:
    pipeline, path = asked or report.upstream.pipeline, report.verdict["path"]
    if path != "refused":
        task = f" --task {report.task}" if report.task is not None else ""
        given = "".join(f" {shlex.quote(option)}" for option in options)
        # Into a folder of its own: no checkout need pin this version, which may be of one's own.
        return f"`omni-scaffold new MODEL --pipeline {shlex.quote(pipeline)}{task}{given} --out DIR --dry-run`"
    return "nothing here; the verdict says why `new` does not render this pipeline"
