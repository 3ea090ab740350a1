"""Facts about the upstream pipeline that a package's ``scaffold.toml`` records, and the release that is installed."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from scaffold.check.model.source import SourceFile, UndecodableError
from scaffold.documents import MalformedError, parse_toml

if TYPE_CHECKING:
    from scaffold.check.model.package import Package

_PIN = re.compile(r"""["']vllm-omni\s*==\s*([0-9][\w.]*)["']""")


def recorded_facts(package: Package) -> dict[str, Any]:
    """Return the whole of a package's ``scaffold.toml``; empty where there is none, or none that is TOML."""
    return _parsed(_text(package, f"{package.path}/scaffold.toml"))[0]


def unreadable_facts(package: Package) -> tuple[SourceFile, int, str] | None:
    """Return the ``scaffold.toml`` that is no TOML, with the line and the reason; None where all is well."""
    source = package.project.source(f"{package.path}/scaffold.toml")
    if source is None or source.partial:
        return None
    try:
        wrong = _parsed(source.plain_text)[1]
    except UndecodableError as error:
        return source, error.line, error.reason
    return (source, min(wrong[0], len(source.lines)), wrong[1]) if wrong is not None else None


def recorded(package: Package, section: str, key: str) -> str | None:
    """Return a value of ``scaffold.toml`` as text, flags as ``true`` and ``false``; None where there is none."""
    value = _value(package, section, key)
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None or isinstance(value, list | dict) else str(value)


def recorded_number(package: Package, section: str, key: str) -> int | None:
    """Return a recorded integer."""
    text = recorded(package, section, key)
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None


def recorded_list(package: Package, section: str, key: str) -> list[str] | None:
    """Return a recorded list of strings."""
    value = _value(package, section, key)
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else None


def recorded_tables(package: Package, section: str, key: str = "") -> list[dict[str, Any]]:
    """Return a recorded list of tables, or, without a key, the tables inside of a section."""
    if not key:
        inner = recorded_facts(package).get(section)
        return [table for table in inner.values() if isinstance(table, dict)] if isinstance(inner, dict) else []
    value = _value(package, section, key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def release(package: Package) -> tuple[int, int] | None:
    """Return major and minor number of the vllm-omni release that the tree is for.

    What ``pyproject.toml`` pins counts; in a tree without one, what ``scaffold.toml`` was made for.
    """
    pin = _PIN.search(_text(package, "pyproject.toml"))
    return numbers(pin[1] if pin else recorded(package, "upstream", "version"))


def numbers(version: str | None) -> tuple[int, int] | None:
    """Return ``(0, 27)`` of ``0.27.0rc1``."""
    found = re.match(r"(\d{1,9})\.(\d{1,9})", version or "")
    return (int(found[1]), int(found[2])) if found else None


def _value(package: Package, section: str, key: str) -> Any:
    table = recorded_facts(package).get(section)
    return table.get(key) if isinstance(table, dict) else None


@lru_cache(maxsize=16)
def _parsed(text: str) -> tuple[dict[str, Any], tuple[int, str] | None]:
    """Return what a text says, and the line and the reason where it is no TOML."""
    try:
        return parse_toml(text), None
    except MalformedError as error:
        return {}, (error.line, error.reason)


def _text(package: Package, path: str) -> str:
    source = package.project.source(path)
    try:
        return source.plain_text if source is not None else ""
    except UndecodableError:
        return ""
