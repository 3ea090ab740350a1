"""The reference integration, broken in many ways: `check` finds what was broken, by the rule that stands for it."""

from __future__ import annotations

import functools
import re
import sys
import tomllib
from pathlib import Path

import pytest

from scaffold.check.catalogue import all_rules
from scaffold.check.checklist import __file__ as checklist_module
from scaffold.check.engine import check_targets
from scaffold.check.finding import Finding
from scaffold.check.model.project import Project
from scaffold.check.model.tree import MemoryTree
from scaffold.check.targets import Target

pytest.importorskip("libcst")
from mutants import all_mutants  # noqa: E402
from mutants.edit import AnchorError  # noqa: E402
from mutants.mutant import Mutant  # noqa: E402

MUTANTS = all_mutants()
FOUND = 0.95
EACH = 3  # mutants of every item of the checklist, and of every pitfall that the text tells


@functools.cache
def reference_files() -> dict[str, str]:
    """Return the reference integration: path -> text; links as `MemoryTree` writes them."""
    root = Path(__file__).parents[2] / "reference_bagel"
    files = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            files[path.relative_to(root).as_posix()] = f"-> {path.readlink()}"
        elif path.is_file():
            files[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return files


def found(files: dict[str, str]) -> list[Finding]:
    """Return what all rules find."""
    project = Project(MemoryTree(files))
    return list(check_targets([Target(project, project.packages, whole=True)]).findings)
