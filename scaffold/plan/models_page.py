"""A package's section in verl-omni's page of supported models, as text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scaffold.errors import ScaffoldError

_TEXT = re.compile(r"[^\n\r|]+")
_RULES = ("## ", "---")


@dataclass(frozen=True)
class ModelsPageEdit:
    """A section, added after the last one below a heading.

    Attributes:
        path: of the page.
        heading: the heading of the kind of model, without ``#``.
        model: the heading of the section.
        properties: rows of its first table, name and value.
        scripts: launch scripts with what each trains and the GPUs it takes.
    """

    path: str
    heading: str
    model: str
    properties: tuple[tuple[str, str], ...]
    scripts: tuple[tuple[str, str, str], ...]

    def apply(self, source: str) -> str:
        """Return the page with the section; a page that names one of the scripts stays as it is.

        Raises:
            ScaffoldError: the page has no such heading.
        """
        lines = source.splitlines(keepends=True)
        if any(f"`{script}`" in source for _, script, _ in self.scripts):
            return source
        newline = "\r\n" if "\r\n" in source else "\n"
        end = self._end(lines)
        return "".join([*lines[:end], *(line + newline for line in self._section()), *lines[end:]])

    def revert(self, source: str) -> str:
        """Return the page without the section; one that a person wrote or changed stays."""
        lines, mine = source.splitlines(keepends=True), self._section()
        texts = [line.rstrip("\r\n") for line in lines]
        for at in range(len(texts) - len(mine) + 1):
            if texts[at : at + len(mine)] == mine:
                return "".join([*lines[:at], *lines[at + len(mine) :]])
        return source

    def _section(self) -> list[str]:
        words = [self.model, *(word for row in (*self.properties, *self.scripts) for word in row)]
        if not all(map(_TEXT.fullmatch, words)):
            raise ScaffoldError(f"{self.path}: {self.model!r} cannot be written as a section")
        rows = [f"| **{name}** | {value} |" for name, value in self.properties]
        scripts = [f"| {what} | `{script}` | {gpus} |" for what, script, gpus in self.scripts]
        properties = ["| Property | Detail |", "|----------|--------|", *rows]
        trainers = ["| Trainer | Example script | GPU config |", "|---------|---------------|------------|", *scripts]
        return ["", f"### {self.model}", "", *properties, "", "**Supported trainers:**", "", *trainers]

    def _end(self, lines: list[str]) -> int:
        """Return the number of the last line below the heading that is not empty."""
        texts = [line.rstrip() for line in lines]
        if f"## {self.heading}" not in texts:
            raise ScaffoldError(f"{self.path}: expected the heading {self.heading!r}")
        first = texts.index(f"## {self.heading}") + 1
        last = next((i for i in range(first, len(texts)) if texts[i].startswith(_RULES)), len(texts))
        while last > first and not texts[last - 1]:
            last -= 1
        return last
