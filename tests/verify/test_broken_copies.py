"""Each known bug, put into a copy of the reference package, fails the contract that is meant for it.

A case names the contracts that must fail; ``consequences`` may, and every other contract asked must pass.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known_bugs import all_bugs
from known_bugs.bug import COMMON, OTHERS, Bug

from scaffold.verify.catalogue import catalogue


def names(bug: Bug) -> str:
    return f"{bug.pitfall}-{bug.name}"


@pytest.mark.parametrize("bug", all_bugs(), ids=names)
def test_each_known_bug_fails_its_contract(bug: Bug, copied: Path, results: Any, edit: Callable[..., None]) -> None:
    model = copied.name.removesuffix("_flow_grpo")
    for file, anchor, text in bug.edits:
        edit((copied / file.format(model=model)).resolve(), anchor, text)
    for anchor, text in bug.spec_edits:
        edit(copied / "scaffold.toml", anchor, text)
    found = results(copied, *dict.fromkeys((*bug.fails, *OTHERS)))
    lines = {name: f"{check.status}: {check.reason}" for name, check in found.items()}
    assert [name for name in bug.fails if found[name].status != "fail"] == [], lines
    beside = set(found) - {*bug.fails, *bug.consequences}
    assert [name for name in beside if found[name].status != "pass"] == [], lines
    assert bug.pitfall is None or bug.pitfall in found[bug.fails[0]].pitfalls


def test_timesteps_beside_sigmas_fail_on_the_diffusers_that_ignores_them(
    copied: Path, results: Any, edit: Callable[..., None]
) -> None:
    """Pitfall 44: 0.38.0 honours ``timesteps=``, 0.40.0 does not."""
    edit(copied / COMMON, "    scheduler.timesteps = scheduler.sigmas[:-1].clone()\n", "")
    edit(
        copied / COMMON, "set_timesteps(sigmas=sigmas, device", "set_timesteps(sigmas=sigmas, timesteps=sigmas, device"
    )
    found = results(copied, "schedule-diffusers-0.38.0", "schedule-diffusers-0.40.0")
    if found["schedule-diffusers-0.40.0"].status == "skip":
        pytest.skip(found["schedule-diffusers-0.40.0"].reason)
    assert found["schedule-diffusers-0.38.0"].status == "pass", found["schedule-diffusers-0.38.0"].reason
    assert found["schedule-diffusers-0.40.0"].status == "fail"


def test_every_contract_has_a_bug_that_fails_it() -> None:
    shown = {name for bug in all_bugs() for name in bug.fails} | {"schedule-diffusers-0.40.0"}
    assert {entry.id for entry in catalogue()} - shown == {"fsdp2-nccl"}, "the one that needs two GPUs"
