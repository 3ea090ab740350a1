"""Who still names a rule that is gone is told what sees the mistake now."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.check import catalogue
from scaffold.check.example import base_tree, check_files

REMOVED = tomli.loads(Path(catalogue.__file__).with_name("removed.toml").read_text(encoding="utf-8"))
GONE = "OSC228 was removed: contract `cfg-formula` measures it"


def test_no_rule_is_there_and_removed() -> None:
    assert not {rule.id for rule in catalogue.all_rules()} & set(REMOVED)


def test_what_is_named_instead_is_there(is_measured: Callable[[str], bool]) -> None:
    rules = {rule.id for rule in catalogue.all_rules()}
    assert REMOVED
    for rule, instead in REMOVED.items():
        assert all(map(is_measured, re.findall(r"`([\w.-]+)`", instead))), rule
        assert set(re.findall(r"OSC\d{3}", instead)) <= rules, rule


@pytest.mark.parametrize("option", ["--ignore", "--select", "--explain"])
def test_option_says_so(scaffold_cli: Callable[..., Any], reference: Path, option: str) -> None:
    result = scaffold_cli("check", reference, option, "OSC228")
    assert GONE in result.refusal()


def test_setting_says_so(scaffold_cli: Callable[..., Any], write_base: Callable[..., Path], tmp_path: Path) -> None:
    write_base(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.omni-scaffold]\nignore = ["OSC228"]\n')
    result = scaffold_cli("check", tmp_path)
    assert GONE in result.refusal()
    assert "pyproject.toml" in result.refusal()


def test_comment_says_so() -> None:
    files = dict(base_tree("non_diffusers"))
    path = "verl_omni/pipelines/toy_flow_grpo/common.py"
    files[path] = files[path].replace("= 3.0\n", "= 3.0  # omni-scaffold: ignore[OSC228] measured\n")
    assert [(f.rule, f.message) for f in check_files(files)] == [("OSC901", GONE)]
