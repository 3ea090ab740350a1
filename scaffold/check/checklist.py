"""What the rules stand for: items of the guide's checklist, and bugs that happened."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from scaffold.reading import read_text


class Entry(NamedTuple):
    """An item of the checklist, or a pitfall.

    Attributes:
        id: ``M3``, or ``pitfall 32``, as rules cite it.
        part: which part of an integration it is about; empty for pitfalls.
        text: what is asked for, or what went wrong.
        text_tells: the text of a package, or a checkpoint's headers, show it, so that a rule has to.
        verify: why the text does not tell all of it; None where it does.
    """

    id: str
    part: str
    text: str
    text_tells: bool
    verify: str | None


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """Return all items, then all pitfalls."""
    import tomli

    data = tomli.loads(read_text(Path(__file__).with_suffix(".toml")))
    items = [Entry(item["id"], item["part"], item["text"], True, item.get("verify")) for item in data["item"]]
    pitfalls = [
        Entry(f"pitfall {item['number']}", "", item["text"], item["text_tells"], item.get("verify"))
        for item in data["pitfall"]
    ]
    return (*items, *pitfalls)
