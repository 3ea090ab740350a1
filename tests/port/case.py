"""The cases of ``cases/``, read without executing them: they import torch and run in another environment."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).with_name("cases")
ALL = ("0.27.0rc1", "0.30.0")


@dataclass(frozen=True)
class Case:
    """One denoiser, tiny: its class, versions that have it, methods to keep beside ``forward``."""

    name: str
    module: str
    class_name: str
    versions: tuple[str, ...]
    also: tuple[str, ...]


def cases() -> list[Case]:
    """Return all cases, by name."""
    found = []
    for path in sorted(CASES.glob("*.py")):
        values = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
        }
        found.append(
            Case(path.stem, values["MODULE"], values["CLASS"], values.get("VERSIONS", ALL), values.get("ALSO", ()))
        )
    return found
