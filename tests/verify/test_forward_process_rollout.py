"""A package that is made for DiffusionNFT, in the real pipeline: what training predicts is what the rollout did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_rollout import OF_NFT, rolled

VERSION = "0.30.0"


@pytest.mark.rollout
@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.rollout_table
def test_training_predicts_what_the_rollout_stepped_with(rendered: Callable[..., Path]) -> None:
    asked = ("--algorithm", "diffusion_nft")
    tree = rendered("flux", "--pipeline", "FluxPipeline", "--vllm-omni", VERSION, *asked)
    found = rolled(tree / "verl_omni/pipelines/flux_flow_grpo", VERSION, *sorted(OF_NFT))
    assert set(found) == OF_NFT
    assert {name: result.status for name, result in found.items() if result.status != "pass"} == {}
    assert found["rollout-control-forward-process"].value is not None
