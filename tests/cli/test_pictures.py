"""The pictures of the README are the tool's own, and `make docs` and `make learning` make each of them."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOWN = re.findall(r"!\[[^\]]+\]\((docs/[\w.]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))


def words_of(picture: str) -> str:
    """The text of a recording, one line a row."""
    drawn = (ROOT / picture).read_text(encoding="utf-8")
    ElementTree.fromstring(drawn)
    rows = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    return "\n".join(html.unescape(row).replace("\xa0", " ") for row in rows)


@pytest.mark.parametrize("picture", SHOWN)
def test_each_has_the_command_that_makes_it(picture: str) -> None:
    assert words_of(picture)
    makers = (ROOT / "Makefile").read_text() + (ROOT / "benchmarks/learning.py").read_text()
    assert Path(picture).name in makers


def test_every_command_of_a_run_is_shown() -> None:
    assert {"docs/inspect.svg", "docs/new.svg", "docs/verify.svg"} <= set(SHOWN)


def test_verify_shows_every_contract() -> None:
    from scaffold.verify.catalogue import catalogue

    shown, page = words_of("docs/verify.svg"), (ROOT / "docs/verify.md").read_text(encoding="utf-8")
    missing = [entry.id for entry in catalogue() if entry.id not in shown]
    assert missing == [], "run `make docs`"
    assert [entry.id for entry in catalogue() if f"`{entry.id}`" not in page] == []
    assert re.search(r"\b0 fail\b", shown)


def test_new_shows_every_file(reference: Path) -> None:
    shown = words_of("docs/new.svg")
    names = {path.name for path in reference.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert [name for name in sorted(names) if name not in shown] == [], "run `make docs`"
    assert "LoRA of rank 64" in shown
