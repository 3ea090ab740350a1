"""A checkout with a package of its own for the pipeline: `new` names it and what is rendered otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaffold.new.own_packages import own_package_notes
from scaffold.spec import IntegrationSpec
from scaffold.target import Checkout, profile_by_name

FIRST = """
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline
from verl_omni.pipelines.model_base import VllmOmniPipelineBase


@VllmOmniPipelineBase.register("SomeArchitecture", algorithm="flow_grpo")
class Sampled(BagelPipeline):
    supports_request_batch = True
"""
HEIR = """
from verl_omni.pipelines.first_flow_grpo.adapter import Sampled
from verl_omni.pipelines.model_base import VllmOmniPipelineBase


@VllmOmniPipelineBase.register("AnotherArchitecture", algorithm="alpha_grpo")
class Heir(Sampled):
    supports_request_batch = False
"""
OTHER = FIRST.replace("BagelPipeline", "OtherPipeline")
SCRIPT = (
    "python3 -m verl_omni.trainer.main_diffusion \\\n    +actor_rollout_ref.model.architecture=SomeArchitecture \\\n"
    "    actor_rollout_ref.model.lora_rank=64 \\\n    actor_rollout_ref.model.lora.merge=True \\\n"
    "    trainer.use_v1=False\n"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    names = ("first_flow_grpo", "heir_alpha_grpo", "other_flow_grpo")
    files = {
        "verl_omni/pipelines/__init__.py": "".join(f"from . import {name}\n" for name in names),
        "verl_omni/pipelines/model_base.py": "class VllmOmniPipelineBase: ...\nclass DiffusionModelBase: ...\n",
        "verl_omni/pipelines/non_diffusers_model_base.py": "class NonDiffusersModelBase: ...\n",
        "examples/flowgrpo_trainer/first/run_first.sh": SCRIPT,
    }
    for name, text in zip(names, (FIRST, HEIR, OTHER), strict=True):
        files[f"verl_omni/pipelines/{name}/__init__.py"] = ""
        files[f"verl_omni/pipelines/{name}/adapter.py"] = text
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_each_is_named_with_what_is_otherwise(checkout: Path, reference_spec: IntegrationSpec) -> None:
    newest = profile_by_name("v0.3.0")
    first, heir = own_package_notes(checkout, reference_spec, newest)
    assert first.startswith(
        "the checkout has a package of its own for BagelPipeline: first_flow_grpo (SomeArchitecture, flow_grpo); "
        "what is rendered does otherwise: the rollout adapter folds LoRA, there the trainer merges LoRA; "
        "it starts trainer v1, there v0; one request at a time, there several; `check` finds OSC"
    )
    assert "heir_alpha_grpo (AnotherArchitecture, alpha_grpo)" in heir
    assert "one request" not in heir


def test_a_package_that_the_tool_wrote_is_none_of_these(
    checkout: Path, reference: Path, reference_spec: IntegrationSpec
) -> None:
    package = checkout / "verl_omni/pipelines/first_flow_grpo"
    for name in ("scaffold.toml", "scaffold.lock.toml"):
        (package / name).write_bytes((reference / "verl_omni/pipelines/bagel_flow_grpo" / name).read_bytes())
    (heir,) = own_package_notes(checkout, reference_spec, Checkout.open(checkout).profile)
    assert "heir_alpha_grpo" in heir
