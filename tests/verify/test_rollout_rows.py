"""What a package returns, through verl-omni's own batch of v0 and the rows of v1's queue."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from scaffold.verify.result import CheckResult
from scaffold.verify.rollout.level import LIBRARY
from tests.real_rollout import OF_CHECKOUTS, is_found, rolled

pytestmark = [
    pytest.mark.rollout,
    pytest.mark.slow,
    pytest.mark.xdist_group("engine 0.27.0rc1"),
    pytest.mark.skipif(not os.environ.get(LIBRARY), reason=f"{LIBRARY} names no checkout of verl-omni"),
]
VERSION = "0.27.0rc1"
ADAPTER = "verl_omni/pipelines/bagel_flow_grpo/vllm_omni_rollout_adapter.py"


def measured(self_contained: Path, folder: Path, old: str, new: str) -> dict[str, CheckResult]:
    """Results of a copy of the self-contained package with one text of its rollout adapter replaced."""
    tree = Path(shutil.copytree(self_contained, folder / "tree", symlinks=True))
    adapter = tree / ADAPTER
    text = adapter.read_text()
    assert text.count(old) == 1
    adapter.write_text(text.replace(old, new))
    return rolled(tree, VERSION, *OF_CHECKOUTS)


def test_a_package_that_hands_on_no_ids_does_not_train(self_contained: Path, tmp_path: Path) -> None:
    found = measured(self_contained, tmp_path, "rl=carried,", "rl={},")
    assert any(found[name].status == "fail" for name in OF_CHECKOUTS)
    for name in OF_CHECKOUTS:
        assert is_found(found[name])
        assert "encoded_prompt_ids" in found[name].reason


def test_ids_that_are_no_tensor_are_lost_in_the_row_alone(self_contained: Path, tmp_path: Path) -> None:
    found = measured(
        self_contained, tmp_path, "rl=carried,", "rl={n: [[*map(int, c[0])]] for n, c in carried.items()},"
    )
    assert "encoded_prompt_ids" in found["rollout-row-v1"].reason
    assert is_found(found["rollout-row-v1"])
    assert any(result.status == "fail" for result in found.values())


def test_ids_as_wide_as_each_prompt_stop_the_batch_of_v0(self_contained: Path, tmp_path: Path) -> None:
    narrow = "rl={n: c[:, carried['encoded_prompt_mask'][0]] for n, c in carried.items()},"
    found = measured(self_contained, tmp_path, "rl=carried,", narrow)
    assert found["rollout-batch-v0"].status == "fail"
    assert "Sizes of tensors must match" in found["rollout-batch-v0"].reason
    assert found["rollout-row-v1"].status == "pass"
