"""Facts about the upstream pipeline that a package's ``scaffold.toml`` records, and the release that is installed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scaffold.check.model.source import UndecodableError

if TYPE_CHECKING:
    from scaffold.check.model.package import Package

_PIN = re.compile(r"""["']vllm-omni\s*==\s*([0-9][\w.]*)["']""")


def recorded(package: Package, section: str, key: str) -> str | None:
    """Return the value of a key of ``scaffold.toml`` as it is written, quotes taken off; None where there is none."""
    text = _text(package, f"{package.path}/scaffold.toml")
    start = re.search(rf"^\[{re.escape(section)}\]\s*$", text, re.MULTILINE)
    if start is None:
        return None
    end = re.compile(r"^\[", re.MULTILINE).search(text, start.end())
    body = text[start.end() : end.start() if end else len(text)]
    found = re.search(rf"^{re.escape(key)} *= *(\[[^\]]*\]|.*)$", body, re.MULTILINE)
    return found[1].strip().strip('"') if found else None


def recorded_number(package: Package, section: str, key: str) -> int | None:
    """Return a recorded integer."""
    text = recorded(package, section, key)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def recorded_list(package: Package, section: str, key: str) -> list[str] | None:
    """Return a recorded list of strings."""
    text = recorded(package, section, key)
    return re.findall(r'"([^"]*)"', text) if text is not None and text.startswith("[") else None


def release(package: Package) -> tuple[int, int] | None:
    """Return major and minor number of the vllm-omni release that the tree is for.

    What ``pyproject.toml`` pins counts; in a tree without one, what ``scaffold.toml`` was made for.
    """
    pin = _PIN.search(_text(package, "pyproject.toml"))
    return numbers(pin[1] if pin else recorded(package, "upstream", "version"))


def numbers(version: str | None) -> tuple[int, int] | None:
    """Return ``(0, 27)`` of ``0.27.0rc1``."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def _text(package: Package, path: str) -> str:
    source = package.project.source(path)
    try:
        return source.text if source is not None else ""
    except UndecodableError:
        return ""
