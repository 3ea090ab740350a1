"""Packages that are made for DiffusionNFT and DPO, in the real pipeline: training predicts what the rollout did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_rollout import OF_DPO, OF_NFT, rolled

VERSION = "0.30.0"


@pytest.mark.rollout
@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.rollout_table
@pytest.mark.parametrize(("algorithm", "checks"), [("diffusion_nft", OF_NFT), ("dpo", OF_DPO)])
def test_training_predicts_what_the_rollout_stepped_with(
    rendered: Callable[..., Path], algorithm: str, checks: set[str]
) -> None:
    asked = ("--algorithm", algorithm)
    tree = rendered("flux", "--pipeline", "FluxPipeline", "--vllm-omni", VERSION, *asked)
    found = rolled(tree / "verl_omni/pipelines/flux_flow_grpo", VERSION, *sorted(OF_DPO))
    assert {name for name, result in found.items() if result.status == "pass"} == checks
    assert {name for name, result in found.items() if result.status != "skip"} == checks
    assert found["rollout-control-forward-process"].value is not None
