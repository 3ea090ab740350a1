"""Requests of one batch in the real vllm-omni on a CPU: a mistake in how they are joined is seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.real_rollout import rolled

pytestmark = [pytest.mark.rollout, pytest.mark.rollout_table, pytest.mark.slow]
VERSION = "0.27.0rc1"
RUNTIME = "verl_omni/pipelines/flow_grpo_runtime"
ROWS = "rollout-together-rows"
MISTAKES = {
    "the velocity of a neighbour": (
        "joint_forward.py",
        "found[index] = velocity[place : place + 1]",
        "found[index] = velocity.roll(1, 0)[place : place + 1]",
    ),
    "padding of a shorter prompt seen": ("joint_forward.py", "MASK: prompts(MASK)}", "MASK: prompts(MASK) | True}"),
    "weights that are not found": ("engine_views.py", "if owner is None or tuple", "if True or tuple"),
    "one request's guidance for all": (
        "joint_forward.py",
        "return repr(sorted(self.guidance.items())), self.size",
        "return self.size",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_joining_is_seen(reference: Path, tmp_path: Path, name: str) -> None:
    tree = shutil.copytree(reference, tmp_path / "tree", symlinks=True)
    file, before, after = MISTAKES[name]
    path = tree / RUNTIME / file
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")
    package = next(tree.glob("verl_omni/pipelines/*/scaffold.toml")).parent
    results = rolled(package, VERSION, ROWS, "rollout-engine-float32")
    assert results["rollout-engine-float32"].status == "pass"
    assert results[ROWS].status == "fail"
