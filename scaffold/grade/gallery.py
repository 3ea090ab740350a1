"""Writes docs/gallery.html, every pipeline of every supported version on one page that can be searched.

``python -m scaffold.grade.gallery > docs/gallery.html`` grades them, a minute for each version;
``python -m scaffold.grade.gallery FILE... > docs/gallery.html`` takes answers of ``list --format json``.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from scaffold.documents import parse_json
from scaffold.grade import COMPLETE, PARTIAL, REFUSED, UNPROVEN
from scaffold.grade.models_page import DIFFUSERS, VERSION
from scaffold.printable import printable
from scaffold.reading import read_text

PAGE = Path(__file__).resolve().parent / "page"
GRADES = (COMPLETE, UNPROVEN, PARTIAL, REFUSED, DIFFUSERS)
COLUMNS = ("pipeline", "grade", "makes", "guidance", "why, and what is left to write")


def supported_versions() -> tuple[str, ...]:
    """Return the versions that a release of verl-omni pins, and the one of docs/models.md; the newest first."""
    from packaging.version import Version

    from scaffold.target import profiles

    return tuple(sorted({VERSION, *(profile.vllm_omni for profile in profiles())}, key=Version, reverse=True))


def gallery(tables: Sequence[Mapping[str, Any]]) -> str:
    """Return the page; whatever text a table holds is shown, never markup.

    Args:
        tables: answers of ``list``, the newest version first.
    """
    style, script = read_text(PAGE / "gallery.css"), read_text(PAGE / "gallery.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    versions = [_text(table["upstream"]["version"]) for table in tables]
    choices = "".join(f'<option value="{name}">vllm-omni {name}</option>' for name in versions)
    grades = "".join(f'<option value="{name}">{name}</option>' for name in GRADES)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f"<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}; base-uri 'none'; form-action 'none'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            "<title>omni-scaffold: every pipeline</title>",
            '<link rel="icon" href="data:,">',
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            "<header>",
            "<h1>What omni-scaffold makes of every pipeline</h1>",
            "<p>Read from the source of vllm-omni without a checkpoint, as <code>omni-scaffold list</code> shows it. "
            "<code>complete</code>: rendered whole. <code>unproven</code>: rendered whole, <code>verify --level "
            "rollout</code> has to show it, or verl-omni lacks something. <code>partial</code>: rendered with places "
            "to write. <code>refused</code>: not supported here. <code>diffusers</code>: diffusers loads the denoiser, "
            "which is an easier path.</p>",
            "</header>",
            "<form hidden>",
            '<label>Words <input type="search" name="words" placeholder="video wan" autocomplete="off"></label>',
            f'<label>Version <select name="version">{choices}<option value="">all</option></select></label>',
            f'<label>Grade <select name="grade"><option value="">all</option>{grades}</select></label>',
            '<output aria-live="polite"></output>',
            "</form>",
            "<main>",
            *(line for table in tables for line in _section(table)),
            "</main>",
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _section(table: Mapping[str, Any]) -> Iterator[str]:
    version = _text(table["upstream"]["version"])
    rows = sorted(table["pipelines"], key=lambda row: (_rank(row["grade"]), str(row["pipeline"])))
    counts = Counter(row["grade"] or "not established" for row in rows)
    yield f'<section data-version="{version}">'
    yield f"<h2>vllm-omni {version}</h2>"
    yield f"<p>{', '.join(f'{number} {_text(grade)}' for grade, number in counts.items())}</p>"
    heads = "".join(f'<th scope="col" role="columnheader">{name}</th>' for name in COLUMNS)
    yield f'<table role="table">\n<thead role="rowgroup"><tr role="row">{heads}</tr></thead>\n<tbody role="rowgroup">'
    for row in rows:
        grade = row["grade"] if row["grade"] in GRADES else "unknown"
        cells = (f'<span class="{grade}">{grade}</span>', _makes(row), _guidance(row), _reason(row))
        labelled = zip(COLUMNS[1:], cells, strict=True)
        shown = "".join(f'<td role="cell" data-label="{label}">{cell}</td>' for label, cell in labelled)
        head = f'<th scope="row" role="rowheader">{_text(row["pipeline"])}</th>'
        yield f'<tr role="row" data-grade="{grade}" data-version="{version}">{head}{shown}</tr>'
    yield "</tbody>\n</table>\n</section>"


def _rank(grade: str | None) -> int:
    return GRADES.index(grade) if grade in GRADES else len(GRADES)


def _makes(row: Mapping[str, Any]) -> str:
    media = row["media"] or []
    brings = f" from text and {', '.join(map(_text, media))}" if media else ""
    return f"{_text(row['modality'] or 'not established')}{brings}"


def _guidance(row: Mapping[str, Any]) -> str:
    cfg = row["cfg"]
    if cfg["execution"] == "none":
        return "none"
    if cfg["branches"] is None:
        return "not established"
    scales = ", ".join(f"<code>{_text(name)}</code> {_text(value)}" for name, value in (cfg["scales"] or {}).items())
    return f"{_text(cfg['branches'])} branches{f', {scales}' if scales else ''}"


def _reason(row: Mapping[str, Any]) -> str:
    verdict = row["verdict"]
    place = _place(f"{verdict['file']}:{verdict['line']}" if verdict["file"] else None)
    said = f"{_text(verdict['reason'])}{place}"
    left = row["left"]
    needs = [need for need in row.get("needs") or [] if need["what"] not in [entry["what"] for entry in left]]
    return said + _listed(left, "left to write") + _listed(needs, "that verl-omni does not carry")


def _listed(entries: Sequence[Mapping[str, Any]], what: str) -> str:
    if not entries:
        return ""
    items = "".join(f"<li>{_text(entry['what'])}{_place(entry['at'])}</li>" for entry in entries)
    return f"<details><summary>{len(entries)} {what}</summary><ul>{items}</ul></details>"


def _place(at: str | None) -> str:
    """A place of vllm-omni; where there is no room for it, it breaks behind a folder."""
    return f" <code>{_text(at).replace('/', '/<wbr>')}</code>" if at else ""


def _text(value: object) -> str:
    return escape(printable("" if value is None else value))


def main(files: Sequence[str]) -> None:
    """Print the page of these answers of ``list``, or of all supported versions."""
    from scaffold.grade.overview import overview

    tables = [parse_json(read_text(file)) for file in files] or [overview(version) for version in supported_versions()]
    sys.stdout.write(gallery(tables))


if __name__ == "__main__":
    main(sys.argv[1:])
