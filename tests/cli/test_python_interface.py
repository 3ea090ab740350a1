"""docs/python.md: every example runs, and every function of the interface has one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import scaffold.api as api

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"^## `(\w+)\(.*?^```python\n(.*?)^```", (ROOT / "docs/python.md").read_text(), re.M | re.S)
FUNCTIONS = ["inspect_pipeline", "plan_new", "check_paths", "verify", "load_headers"]


def test_the_page_has_every_function() -> None:
    assert [name for name, _ in EXAMPLES] == FUNCTIONS
    assert set(FUNCTIONS) <= set(api.__all__)
    assert all(hasattr(api, name) for name in api.__all__)


@pytest.mark.upstream
@pytest.mark.parametrize(("name", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_example_runs(
    name: str,
    code: str,
    warm: None,
    released_bagel: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "reference_bagel").symlink_to(ROOT / "reference_bagel")
    released_bagel(tmp_path / "BAGEL-7B-MoT")
    assert f"{name}(" in code
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/python.md", "exec"), {"__name__": "__main__"})
    assert not (tmp_path / "build").exists(), "the functions write nothing"
