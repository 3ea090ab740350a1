"""The mistakes that `check` and `verify` are measured by: each has somebody who is there and sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli

from scaffold.check.catalogue import all_rules

MISTAKES: list[dict[str, Any]] = tomli.loads(Path(__file__).with_name("yardstick.toml").read_text(encoding="utf-8"))[
    "mistakes"
]


def test_who_has_to_see_each_is_there(is_measured: Callable[[str], bool]) -> None:
    known = {rule.id for rule in all_rules()}
    for mistake in MISTAKES:
        rules = {who for who in mistake["who"] if who.startswith("OSC")}
        others = set(mistake["who"]) - rules
        assert rules <= known, mistake["says"]
        assert all(map(is_measured, others)), mistake["says"]
        assert mistake["seen"] in ("text", "run", "either"), mistake["says"]
        assert rules or mistake["seen"] != "text", mistake["says"]
        assert others or mistake["seen"] != "run", mistake["says"]
