"""Facts recorded in ``scaffold.toml`` are read as TOML: line ends and comments change none of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EDITS: dict[str, Callable[[str], str]] = {
    "CR LF": lambda text: text.replace("\n", "\r\n"),
    "comments": lambda text: re.sub(r"(?m)^([\w.]+ = [^\[\n]+|\])$", r'\1  # "mine"', text),
    "one line": lambda text: re.sub(
        r"\[\n((?:    \"[^\"]*\",\n)+)\]", lambda m: f"[{m[1].replace(chr(10), '')}]", text
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_another_spelling_says_the_same(
    scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path, edit: str
) -> None:
    tree = Path(shutil.copytree(reference, tmp_path / "tree", symlinks=True))
    spec = next(tree.glob("verl_omni/pipelines/*/scaffold.toml"))
    text = spec.read_text(encoding="utf-8")
    assert EDITS[edit](text) != text
    spec.write_bytes(EDITS[edit](text).encode())
    scaffold_cli("check", spec.parent).success()
