"""Copies of the reference package, and what `verify` finds in them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import require

from scaffold.verify.result import CheckResult, VerifyReport
from scaffold.verify.run import verify

require("torch", "peft")


@pytest.fixture
def copied(self_contained: Path, tmp_path: Path) -> Path:
    """Return the package folder in a writable copy of the self-contained tree, tests and documents left out."""
    for name in ("verl_omni", "examples"):
        shutil.copytree(self_contained / name, tmp_path / "copy" / name)
    return next((tmp_path / "copy" / "verl_omni" / "pipelines").iterdir())


Results = Callable[..., dict[str, CheckResult]]


@pytest.fixture
def results(warm: None) -> Results:
    """Return a function that verifies a package and gives the results by id."""

    def run(package: Path, *select: str, **options: Any) -> dict[str, CheckResult]:
        return by_id(verify(package, select=select, **options))

    return run


def by_id(report: VerifyReport) -> dict[str, CheckResult]:
    """Results by id."""
    return {check.id: check for check in report.checks}


@pytest.fixture
def edit() -> Callable[[Path, str, str], None]:
    """Return a function that replaces one anchored text of a file, and fails where it is not there exactly once."""

    def replace(file: Path, anchor: str, text: str) -> None:
        content = file.read_text(encoding="utf-8")
        assert content.count(anchor) == 1, f"{file.name} holds {anchor!r} {content.count(anchor)} times"
        file.write_text(content.replace(anchor, text), encoding="utf-8")

    return replace
