"""Formulas of composed packages against a tape of their pipeline: a mistake in one is seen.

That they agree is what `test_rollout.py` asks of the reference.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scaffold.upstream import DEFAULT_VERSION
from tests.real_rollout import OF_COMPOSED, rolled

pytestmark = [pytest.mark.rollout, pytest.mark.upstream]
GUIDANCE = "verl_omni/pipelines/flow_grpo_runtime/guidance.py"
MISTAKES = {
    "the branch without the prompt weighs more": (
        "* (conditional - unconditional)",
        "* (conditional - 1.1 * unconditional)",
    ),
    "the norm is that of each token": ('dims = (1, 2) if kind == "global"', 'dims = (-1,) if kind == "global"'),
}
FIRST = "the norm is that of each token"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == FIRST else pytest.mark.rollout_table) for name in MISTAKES]
)
def test_a_formula_that_is_not_the_pipelines_fails(reference: Path, tmp_path: Path, name: str) -> None:
    tree = shutil.copytree(reference, tmp_path / "tree", symlinks=True)
    before, after = MISTAKES[name]
    text = (tree / GUIDANCE).read_text(encoding="utf-8")
    assert text.count(before) == 1
    (tree / GUIDANCE).write_text(text.replace(before, after), encoding="utf-8")
    results = rolled(tree / "verl_omni/pipelines/bagel_flow_grpo", DEFAULT_VERSION, *sorted(OF_COMPOSED))
    failed = {check for check, result in results.items() if result.status == "fail"}
    assert results["rollout-composed-levels"].status == "pass"
    assert failed == {"rollout-composed-formula", "rollout-composed-gradient"}, results
