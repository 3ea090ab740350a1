"""The mistakes that `check` and `verify` are measured by: each has somebody who is there and sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.check.catalogue import all_rules

MISTAKES: list[dict[str, Any]] = tomli.loads(Path(__file__).with_name("yardstick.toml").read_text(encoding="utf-8"))[
    "mistakes"
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: str(mistake["says"]))
def test_who_has_to_see_it_is_there(mistake: dict[str, Any]) -> None:
    from scaffold.verify import contracts
    from scaffold.verify.rollout import scenarios

    folders = [Path(room.__path__[0]) for room in (contracts, scenarios)]
    code = "\n".join(file.read_text(encoding="utf-8") for folder in folders for file in folder.glob("*.py"))
    rules = {who for who in mistake["who"] if who.startswith("OSC")}
    others = set(mistake["who"]) - rules
    assert rules <= {rule.id for rule in all_rules()}
    for contract in others:
        # Scenarios measure velocities, under their own name with a suffix.
        scenario = contract.removeprefix("rollout-").removesuffix("-velocity")
        assert f'"{contract}"' in code or f'"{scenario}"' in code, contract
    assert mistake["seen"] in ("text", "run", "either")
    assert rules or mistake["seen"] != "text"
    assert others or mistake["seen"] != "run"
