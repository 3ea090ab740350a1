"""Both adapters are found by the engine."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text
from scaffold.verify.measured import Measured
from scaffold.verify.subject.discovery import registered

ID = "registration"
TITLE = "both adapters are registered, under one key, and exported"
PITFALLS = (25, 26)
RECORDED = False  # it reads the package only


def run(subject: Any) -> Measured:
    """Look both registries up, then the package's exports and the three edits of ``pipelines/__init__.py``."""
    training = registered("DiffusionModelBase", subject.name)
    rollout = registered("VllmOmniPipelineBase", subject.name)
    problems = []
    if not training:
        problems.append("no class is registered with DiffusionModelBase.register")
    if not rollout:
        problems.append("no class is registered with VllmOmniPipelineBase.register")
    if training and rollout and not training.keys() & rollout.keys():
        problems.append(
            f"the training adapter is registered under {_keys(training)}, the rollout's under {_keys(rollout)}"
        )
    exported = set(getattr(subject.package, "__all__", ()))
    for kind in [*training.values(), *rollout.values()]:
        if kind.__name__ not in exported:
            problems.append(f"__all__ of the package lacks {kind.__name__}")
    problems += _wiring(subject.folder.parent / "__init__.py", subject.folder.name)
    return Measured(f"registered under {_keys(training)}", problems)


def _keys(classes: dict[tuple[str, str], type]) -> str:
    return ", ".join("/".join(key) for key in sorted(classes))


def _wiring(init: Path, package: str) -> list[str]:
    """What of the three edits is missing; a rendered tree beside no checkout has no such file."""
    if not init.is_file():
        return []
    names, star, exports = set(), False, False
    for node in ast.walk(ast.parse(read_text(init))):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {alias.name for alias in node.names} if node.module is None else set()
            star = star or (node.module == package and any(alias.name == "*" for alias in node.names))
        elif isinstance(node, ast.AugAssign | ast.Assign):
            exports = exports or f"{package}.__all__" in ast.unparse(node)
    missing = [
        edit
        for edit, there in (
            (f"from . import {package}", package in names),
            (f"from .{package} import *", star),
            (f"__all__ += list({package}.__all__)", exports),
        )
        if not there
    ]
    return [f"verl_omni/pipelines/__init__.py lacks: {'; '.join(missing)}"] if missing else []
