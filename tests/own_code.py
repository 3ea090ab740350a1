"""The tool's own code, parsed once: several tests walk all of it, and run in one worker."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from scaffold.files.resources import PACKAGE_ROOT

in_one_worker = pytest.mark.xdist_group("own code")


@cache
def trees() -> dict[str, ast.Module]:
    """Every module by its path in the package."""
    paths = sorted(PACKAGE_ROOT.rglob("*.py"))
    return {path.relative_to(PACKAGE_ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, of which nobody changes one."""
    return tuple(ast.walk(tree))
