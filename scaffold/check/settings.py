"""``[tool.omni-scaffold]`` of the nearest ``pyproject.toml`` that has it."""

# Annotations are evaluated here: a NamedTuple would compile each that is left as a string, at every start.

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.check.catalogue import require_known
from scaffold.errors import ScaffoldError
from scaffold.files.documents import MalformedError, parse_toml
from scaffold.files.reading import expanded, is_below, read_bytes

TABLE = "omni-scaffold"
FILE = "pyproject.toml"
KEYS = ("select", "ignore", "per-file-ignores", "baseline")


class Settings(NamedTuple):
    """The settings of a project for ``check``.

    Attributes:
        select: rules to run; all by default.
        ignore: rules to leave out.
        per_file_ignores: pattern of paths, from the folder of the file that holds the settings -> rules left out there.
        baseline: file with findings that are known.
        folder: where the settings stand; patterns and the baseline's path start here.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = {}
    baseline: Path | None = None
    folder: Path | None = None

    @property
    def file(self) -> Path | None:
        """The file that has the settings; None where none has."""
        return None if self.folder is None else self.folder / FILE

    def ignored_at(self, path: Path | None) -> list[str]:
        """Return the selectors of rules that are left out in a file."""
        if path is None or self.folder is None or not self.per_file_ignores:
            return []
        try:
            below = Path(os.path.realpath(path)).relative_to(self.folder).as_posix()
        except ValueError:
            return []
        return [
            selector
            for pattern, selectors in self.per_file_ignores.items()
            if fnmatchcase(below, pattern) or fnmatchcase(below, pattern.rstrip("/") + "/*")
            for selector in selectors
        ]


def find_settings(path: Path) -> Settings:
    """Return the settings of the nearest ``pyproject.toml`` at or above a path that has the table.

    Raises:
        ScaffoldError: the file is not TOML, or the table holds what it should not.
    """
    resolved = expanded(path).resolve()
    for folder in (resolved, *resolved.parents):
        file = folder / FILE
        try:
            text = read_bytes(file) if file.is_file() else b""
        except OSError as error:
            raise ScaffoldError(f"{file}: {error.strerror or error}") from error
        if TABLE.encode() not in text:
            continue
        table = _table(file, text)
        if table is not None:
            return _settings(file, table)
    return Settings()


def _table(file: Path, text: bytes) -> Any:
    try:
        tool = parse_toml(text.decode()).get("tool")
    except UnicodeDecodeError:
        raise ScaffoldError(f"{file} is not UTF-8", hint="save it as UTF-8") from None
    except MalformedError as error:
        raise ScaffoldError(f"{file}: no TOML: {error}") from error
    return tool.get(TABLE) if isinstance(tool, dict) else None


def _settings(file: Path, table: Any) -> Settings:
    where = f"{file}, [tool.{TABLE}]"
    if not isinstance(table, dict):
        raise ScaffoldError(f"{where}: must be a table")
    unknown = sorted(set(table) - set(KEYS))
    if unknown:
        raise ScaffoldError(f"{where}: unknown key {unknown[0]!r}", hint=f"there are {', '.join(KEYS)}")
    baseline = table.get("baseline")
    if baseline is not None and not (isinstance(baseline, str) and is_below(file.parent, baseline)):
        raise ScaffoldError(
            f"{where}: baseline must be the path of a file below the folder of {FILE}",
            hint="one that lies elsewhere is given with --baseline",
        )
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise ScaffoldError(f"{where}: per-file-ignores must be a table of pattern = [rules]")
    settings = Settings(
        _selectors(where, "select", table.get("select", [])),
        _selectors(where, "ignore", table.get("ignore", [])),
        {pattern: _selectors(where, f"per-file-ignores {pattern!r}", rules) for pattern, rules in per_file.items()},
        file.parent / baseline if baseline is not None else None,
        file.parent,
    )
    for selector in (
        *settings.select,
        *settings.ignore,
        *(s for rules in settings.per_file_ignores.values() for s in rules),
    ):
        require_known(selector, where)
    return settings


def _selectors(where: str, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ScaffoldError(f"{where}: {key} must be a list of identifiers")
    return tuple(value)
