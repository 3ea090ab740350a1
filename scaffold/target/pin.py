"""Finds the vllm-omni version that a checkout pins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from scaffold.files.documents import MalformedError, parse_toml
from scaffold.files.reading import read_text

MAX_BYTES = 1 << 20

_REQUIREMENT = r"""["'\s]*vllm[-_.]omni\s*(?:\[[^\]]*\]\s*)?===?\s*([0-9](?:[A-Za-z0-9.!+_-]*[A-Za-z0-9])?)(?![\w.*])"""
_ASKED = r"""["'\s]*vllm[-_.]omni\s*(?:\[[^\]]*\]\s*)?\(?([<>=!~@][^;"'#)]*)"""


def vllm_omni_pin(root: Path) -> str | None:
    """Return the version of the first ``vllm-omni==`` requirement, or None.

    ``pyproject.toml`` is asked first, then ``requirements*.txt``, then ``setup.py``.
    """
    return pin_of(lambda name: text_of(root, name), [path.name for path in sorted(root.glob("requirements*.txt"))])


def vllm_omni_asked(root: Path) -> str | None:
    """Return the first requirement of vllm-omni if none pins it: ``>=0.27,<0.28``, ``@ git+…``."""
    return asked_of(lambda name: text_of(root, name), [path.name for path in sorted(root.glob("requirements*.txt"))])


def pin_of(read: Callable[[str], str | None], requirements: Iterable[str] = ("requirements.txt",)) -> str | None:
    """Return the pin of a tree; ``read`` returns the text of a file by its name, or None."""
    for requirement in _requirements(read, requirements):
        match = re.match(_REQUIREMENT, requirement)
        if match:
            return match[1]
    return None


def asked_of(read: Callable[[str], str | None], requirements: Iterable[str] = ("requirements.txt",)) -> str | None:
    """Return the first requirement of vllm-omni in a tree, read as in `pin_of`."""
    found = (re.match(_ASKED, requirement) for requirement in _requirements(read, requirements))
    return next((match[1].strip().rstrip(",") for match in found if match), None)


def text_of(root: Path, path: str) -> str | None:
    """Return a text file of a checkout; None if it is missing, unreadable or too large."""
    try:
        return read_text(root / path, MAX_BYTES, inside=root)
    except (OSError, UnicodeDecodeError):
        return None


def _requirements(read: Callable[[str], str | None], names: Iterable[str]) -> Iterator[str]:
    text = read("pyproject.toml")
    if text is not None:
        yield from _of_pyproject(text)
    for name in (*names, "setup.py"):
        yield from (read(name) or "").splitlines()


# Every package of a tree reads the tree's pin.
@lru_cache(maxsize=4)
def _of_pyproject(text: str) -> tuple[str, ...]:
    return tuple(_pyproject_requirements(text))


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
        yield from (entry for entry in group if isinstance(entry, str)) if isinstance(group, list) else ()


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
