"""Facts of a rendered package, as a person overrules them: they stand in the lock, and in ``scaffold.toml`` first."""

from __future__ import annotations

import re
from pathlib import Path


def overrule(spec: Path, name: str, value: str) -> None:
    """Write a value into a ``scaffold.toml``.

    Args:
        spec: the file.
        name: ``section.key``.
        value: TOML.
    """
    section, _, key = name.partition(".")
    text = spec.read_text(encoding="utf-8")
    line = f"{key} = {value}\n"
    text, changed = re.subn(rf"(?m)^{key} = .*\n", lambda _: line, text) if f"\n{key} = " in text else (text, 0)
    if not changed:
        heading = f"\n[{section}]\n"
        text = text.replace(heading, f"{heading}{line}", 1) if heading in text else f"{text}{heading}{line}"
    spec.write_text(text, encoding="utf-8")


def alter(spec: Path, old: str, new: str) -> None:
    """Replace a text that stands once in the two files of a spec; a lock gets its digest again."""
    from scaffold.spec.lock import LOCK_NAME, seal

    lock = spec.with_name(LOCK_NAME)
    there = [path for path in (spec, lock) if path.read_text(encoding="utf-8").count(old) == 1]
    assert len(there) == 1, f"{old!r} does not stand once in {spec} or its lock"
    text = there[0].read_text(encoding="utf-8").replace(old, new)
    there[0].write_text(seal(text) if there[0] == lock else text, encoding="utf-8")
