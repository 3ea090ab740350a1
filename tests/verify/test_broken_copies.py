"""Each known bug, put into a copy of the reference package, fails the contract that is meant for it.

A case names the contracts that must fail; ``consequences`` may, and every other contract asked must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.verify.catalogue import catalogue

BUGS: list[dict[str, Any]] = tomli.loads(Path(__file__).with_name("known_bugs.toml").read_text(encoding="utf-8"))["bug"]
FILES = {
    "model": "bagel_model.py",
    "common": "common.py",
    "training": "diffusers_training_adapter.py",
    "rollout": "vllm_omni_rollout_adapter.py",
    "spec": "scaffold.toml",
    "data": "../../../examples/flowgrpo_trainer/data_process/bagel_ocr.py",
}
# Asked in every case beside those that must fail, so that a contract that fails on everything shows.
OTHERS = ("determinism",)


def _rows() -> Iterator[Any]:
    """The bugs; one whose contracts all failed for bugs before it is a further row."""
    shown: set[str] = set()
    for bug in BUGS:
        further = shown.issuperset(bug["fails"])
        shown.update(bug["fails"])
        name = f"{bug.get('pitfall')}-{bug['name']}"
        yield pytest.param(bug, id=name, marks=[pytest.mark.table] if further else [])


@pytest.mark.parametrize("bug", list(_rows()))
def test_each_known_bug_fails_its_contract(
    bug: dict[str, Any], copied: Path, results: Any, edit: Callable[..., None]
) -> None:
    for file, anchor, text in bug["edits"]:
        edit((copied / FILES[file]).resolve(), anchor, text)
    found = results(copied, *dict.fromkeys((*bug["fails"], *OTHERS)))
    lines = {name: f"{check.status}: {check.reason}" for name, check in found.items()}
    assert [name for name in bug["fails"] if found[name].status != "fail"] == [], lines
    beside = set(found) - {*bug["fails"], *bug.get("consequences", ())}
    assert [name for name in beside if found[name].status != "pass"] == [], lines
    assert "pitfall" not in bug or bug["pitfall"] in found[bug["fails"][0]].pitfalls


def test_timesteps_beside_sigmas_fail_on_the_diffusers_that_ignores_them(
    copied: Path, results: Any, edit: Callable[..., None]
) -> None:
    """Pitfall 44: 0.38.0 honours ``timesteps=``, 0.40.0 does not."""
    edit(copied / FILES["common"], "    scheduler.timesteps = scheduler.sigmas[:-1].clone()\n", "")
    edit(
        copied / FILES["common"],
        "set_timesteps(sigmas=sigmas, device",
        "set_timesteps(sigmas=sigmas, timesteps=sigmas, device",
    )
    found = results(copied, "schedule-diffusers-0.38.0", "schedule-diffusers-0.40.0")
    if found["schedule-diffusers-0.40.0"].status == "skip":
        pytest.skip(found["schedule-diffusers-0.40.0"].reason)
    assert found["schedule-diffusers-0.38.0"].status == "pass", found["schedule-diffusers-0.38.0"].reason
    assert found["schedule-diffusers-0.40.0"].status == "fail"


def test_every_contract_has_a_bug_that_fails_it() -> None:
    shown = {name for bug in BUGS for name in bug["fails"]} | {"schedule-diffusers-0.40.0"}
    assert {entry.id for entry in catalogue()} - shown == {"fsdp2-nccl"}, "the one that needs two GPUs"
