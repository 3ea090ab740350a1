"""The page goes from files that no release has to a package with all contracts passed, and says what really happens."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import page

pytestmark = pytest.mark.upstream


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return page.prepare(tmp_path)


def test_the_page_is_what_the_commands_print(folder: Path, scaffold_cli: Callable[..., Any]) -> None:
    def run(*words: str) -> str:
        return str(scaffold_cli(*words, cwd=folder).success())

    written = page.DOCUMENT.read_text(encoding="utf-8")
    known = page.outputs_in(written)
    found = page.run_road(folder, run, page.FAST)
    assert written == page.page({**known, **found}, page.version_of(folder))


@pytest.mark.rollout
def test_all_contracts_pass_at_the_end_of_the_road(folder: Path, scaffold_cli: Callable[..., Any]) -> None:
    def run(*words: str) -> str:
        done = scaffold_cli(*words, cwd=folder)
        assert done.code == 0, done.out + done.err
        return str(done.out)

    known = page.outputs_in(page.DOCUMENT.read_text(encoding="utf-8"))
    found = page.run_road(folder, run, (page.RENDER, *page.SLOW))
    assert found.items() <= known.items()
    assert " 0 fail, " in found[page.VERIFY[0]]
