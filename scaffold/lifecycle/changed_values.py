"""The values an update changes: old value, new value, and the files that show it.

The old values are those the lock recorded at the last rendering. The files that show a value are found by rendering the
new package with that one value put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.lifecycle.merge_spec import TAKEN
from scaffold.spec.derived import comparable
from scaffold.spec.knobs import KNOBS, ROWS
from scaffold.spec.toml_text import dumps

if TYPE_CHECKING:
    from scaffold.render import RenderedFile
    from scaffold.spec import IntegrationSpec

    Files = Mapping[str, RenderedFile]
    Render = Callable[[IntegrationSpec], Files]

SHOWN = 60


@dataclass(frozen=True)
class ChangedValue:
    """One value.

    Attributes:
        key: ``section.key``; of a table, followed by the row.
        old: what was rendered last; None for nothing.
        new: what is rendered now; None for nothing.
        files: paths whose rendered text changes with it; None if other values change the same text.
    """

    key: str
    old: Any
    new: Any
    files: tuple[str, ...] | None

    def __str__(self) -> str:
        table, _, row = self.key.rpartition(".")
        where = "together with others" if self.files is None else f"in {self._names() or 'no other file'}"
        return f"{row if table in ROWS else self.key} {_shown(self.old)} to {_shown(self.new)} {where}"

    def _names(self) -> str:
        return ", ".join(dict.fromkeys(path.rpartition("/")[2] for path in self.files or ()))

    def to_json(self) -> dict[str, Any]:
        """Return the entry of ``update --format json``; ``files`` is null if it is unknown."""
        return {"key": self.key, "old": self.old, "new": self.new, "files": self.files and list(self.files)}


def changed_values(
    before: Mapping[str, Mapping[str, Any]], after: IntegrationSpec, files: Files, render: Render
) -> tuple[ChangedValue, ...]:
    """Return the values that differ and either show in a file or are knobs.

    Args:
        before: sections of values of the last rendering.
        after: the spec that is rendered now.
        files: what it renders.
        render: renders a spec.
    """
    there = sorted(
        {
            f"{section}.{key}"
            for sections in (before, after.sections)
            for section in sections
            for key in sections[section]
        }
    )
    changed = [
        (section, key, row, old, new)
        for name in there
        if not name.startswith(TAKEN)
        for section, _, key in [name.partition(".")]
        for row, old, new in _rows(before.get(section, {}).get(key), after.sections.get(section, {}).get(key))
    ]
    found = []
    for section, key, row, old, new in changed:
        value = old if row is None else {**after.sections[section][key], row: old}
        where = _differing(after, section, key, value, files, render)
        name = f"{section}.{key}"
        if where is None or where or name in KNOBS:
            found.append(ChangedValue(name if row is None else f"{name}.{row}", old, new, where))
    return tuple(found)


def _rows(old: Any, new: Any) -> Iterator[tuple[str | None, Any, Any]]:
    """Yield the differences: row by row for two tables, else the value with no row."""
    if comparable(old) == comparable(new):
        return
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        yield None, old, new
        return
    for row in dict.fromkeys([*old, *new]):
        if comparable(old.get(row)) != comparable(new.get(row)):
            yield row, old.get(row), new.get(row)


def _differing(
    spec: IntegrationSpec, section: str, key: str, value: Any, files: Files, render: Render
) -> tuple[str, ...] | None:
    sections = {**spec.sections, section: {**spec.sections.get(section, {}), key: value}}
    try:
        other = render(replace(spec, sections=sections))
    except ScaffoldError:
        return None  # the old value is invalid beside the new ones
    return tuple(path for path in sorted({*files, *other}) if files.get(path) != other.get(path))


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = dumps({"x": {"x": value}}).partition("x = ")[2].strip()
    return text if text and "\n" not in text and len(text) <= SHOWN else "another"
