"""What a package's ``scaffold.toml`` and ``scaffold.lock.toml`` record of the pipeline."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import Any

from scaffold.check.model.source import SourceFile, UndecodableError
from scaffold.files.documents import MalformedError, parse_toml
from scaffold.spec.lock import LOCK_NAME, ONE_FILE, SPEC_NAME, TWO_FILES, read_lock, with_locked


class Facts:
    """The facts of one package.

    Args:
        spec, lock: the two files; None where there is none.
    """

    def __init__(self, spec: SourceFile | None, lock: SourceFile | None) -> None:
        self._spec, self._lock = spec, lock

    @cached_property
    def all(self) -> dict[str, Any]:
        """Everything that is recorded; empty where neither file is TOML."""
        return _parsed(*(file.readable if file is not None else "" for file in (self._spec, self._lock)))[0]

    def unusable(self) -> tuple[SourceFile, int, str] | None:
        """Return the file that cannot be used, with the line and the reason; None where all is well."""
        spec, lock = self._spec, self._lock
        if spec is None or spec.partial or (lock is not None and lock.partial):
            return None
        source = spec
        try:
            text = spec.plain_text
            source = lock or spec
            _, name, wrong = _parsed(text, lock.plain_text if lock is not None else "")
        except UndecodableError as error:
            return source, error.line, f"{source.name} is not TOML: {error.reason}"
        if wrong is None:
            return None
        source = lock if name == LOCK_NAME and lock is not None else spec
        return source, min(wrong.line, len(source.lines)), f"{name} {wrong.reason}"

    def text(self, section: str, key: str) -> str | None:
        """Return a value as text, flags as ``true`` and ``false``; None where there is none."""
        value = self._value(section, key)
        if isinstance(value, bool):
            return "true" if value else "false"
        return None if value is None or isinstance(value, list | dict) else str(value)

    def number(self, section: str, key: str) -> int | None:
        """Return an integer."""
        text = self.text(section, key)
        return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None

    def strings(self, section: str, key: str) -> list[str] | None:
        """Return a list of strings."""
        value = self._value(section, key)
        return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else None

    def tables(self, section: str, key: str) -> list[dict[str, Any]]:
        """Return a list of tables."""
        value = self._value(section, key)
        return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []

    def _value(self, section: str, key: str) -> Any:
        table = self.all.get(section)
        return table.get(key) if isinstance(table, dict) else None


def numbers(version: str | None) -> tuple[int, int] | None:
    """Return ``(0, 27)`` of ``0.27.0rc1``."""
    found = re.match(r"(\d{1,9})\.(\d{1,9})", version or "")
    return (int(found[1]), int(found[2])) if found else None


@lru_cache(maxsize=16)
def _parsed(text: str, lock: str) -> tuple[dict[str, Any], str, MalformedError | None]:
    """Return the content of both files, and which of them cannot be used, and why."""
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
