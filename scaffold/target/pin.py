"""Which vllm-omni a checkout pins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scaffold.documents import MalformedError, parse_toml

MAX_BYTES = 1 << 20

_REQUIREMENT = re.compile(r"""["'\s]*vllm[-_.]omni\s*(?:\[[^\]]*\])?\s*===?\s*([0-9][A-Za-z0-9.!+_-]*)""")


def vllm_omni_pin(root: Path) -> str | None:
    """Return the version of the first ``vllm-omni==`` requirement, or None.

    ``pyproject.toml`` is asked first, then ``requirements*.txt``, then ``setup.py``.
    """
    for requirement in _requirements(root):
        match = _REQUIREMENT.match(requirement)
        if match:
            return match[1]
    return None


def read_text(path: Path) -> str | None:
    """Return a text file of reasonable size, or None where there is none or it cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _requirements(root: Path) -> Iterator[str]:
    text = read_text(root / "pyproject.toml")
    if text is not None:
        yield from _pyproject_requirements(text)
    for path in [*sorted(root.glob("requirements*.txt")), root / "setup.py"]:
        yield from (read_text(path) or "").splitlines()


def _pyproject_requirements(text: str) -> Iterator[str]:
    try:
        data = parse_toml(text)
    except MalformedError:
        yield from text.splitlines()
        return
    project = _table(data.get("project"))
    groups = [project.get("dependencies")]
    groups += _table(project.get("optional-dependencies")).values()
    groups += _table(data.get("dependency-groups")).values()
    for group in groups:
        yield from (entry for entry in group or () if isinstance(entry, str))


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
