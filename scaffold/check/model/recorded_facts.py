"""What a package's ``scaffold.toml`` and ``scaffold.lock.toml`` record of the pipeline, and the installed release."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from scaffold.check.model.source import SourceFile, UndecodableError
from scaffold.files.documents import MalformedError, parse_toml
from scaffold.spec.lock import LOCK_NAME, ONE_FILE, SPEC_NAME, TWO_FILES, read_lock, with_locked

if TYPE_CHECKING:
    from scaffold.check.model.package import Package

_PIN = re.compile(r"""["']vllm-omni\s*==\s*([0-9][\w.]*)["']""")


def recorded_facts(package: Package) -> dict[str, Any]:
    """Return what a package's ``scaffold.toml`` and ``scaffold.lock.toml`` say; empty where none is TOML."""
    return _parsed(*(_text(package, f"{package.path}/{name}") for name in (SPEC_NAME, LOCK_NAME)))[0]


def unreadable_facts(package: Package) -> tuple[SourceFile, int, str] | None:
    """Return the file of facts that cannot be used, with the line and the reason; None where all is well."""
    spec, lock = (package.project.source(f"{package.path}/{name}") for name in (SPEC_NAME, LOCK_NAME))
    if spec is None or spec.partial or (lock is not None and lock.partial):
        return None
    source = spec
    try:
        text = spec.plain_text
        source = lock or spec
        _, name, wrong = _parsed(text, lock.plain_text if lock is not None else "")
    except UndecodableError as error:
        return source, error.line, f"{source.path.rpartition('/')[2]} is not TOML: {error.reason}"
    if wrong is None:
        return None
    source = lock if name == LOCK_NAME and lock is not None else spec
    return source, min(wrong.line, len(source.lines)), f"{name} {wrong.reason}"


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


def recorded_tables(package: Package, section: str, key: str) -> list[dict[str, Any]]:
    """Return a recorded list of tables."""
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
def _parsed(text: str, lock: str) -> tuple[dict[str, Any], str, MalformedError | None]:
    """Return what the two files say, and which of them cannot be used, and why."""
    try:
        facts = parse_toml(text)
    except MalformedError as error:
        return {}, SPEC_NAME, MalformedError(f"is not TOML: {error.reason}", error.line)
    schema = facts.get("schema", ONE_FILE)
    if schema == ONE_FILE:
        return facts, SPEC_NAME, None
    if schema != TWO_FILES:
        return facts, SPEC_NAME, MalformedError(f"has schema {schema!r}, this version reads {TWO_FILES}")
    if not lock:
        return facts, SPEC_NAME, MalformedError(f"has no {LOCK_NAME} beside it, the other half of the facts")
    try:
        return with_locked(facts, read_lock(lock, facts)), LOCK_NAME, None
    except MalformedError as error:
        return facts, LOCK_NAME, error


def _text(package: Package, path: str) -> str:
    source = package.project.source(path)
    try:
        return source.plain_text if source is not None else ""
    except UndecodableError:
        return ""
