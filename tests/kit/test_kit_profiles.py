"""Older releases: what they lack is missing from the kit too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from installed import require

from scaffold.files.resources import kit_root

require("torch")

SURVEY = """
import dataclasses, importlib, inspect, json
from verl_omni.pipelines.model_base import DiffusionModelBase, VllmOmniPipelineBase
from vllm_omni.diffusion.data import DiffusionOutput
from vllm_omni.diffusion.request import OmniDiffusionRequest
from vllm_omni.inputs.data import OmniDiffusionSamplingParams as Params
import vllm_omni

def importable(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name == name, error
        return False
    return True

@VllmOmniPipelineBase.register("A", "flow_grpo")
class Rollout:
    pass

many = "prompts" in {f.name for f in dataclasses.fields(OmniDiffusionRequest)}
request = OmniDiffusionRequest(["a"] if many else "a", Params(guidance_scale=0.0), "r0")
hooks = (
    "configure_trainable_params", "validate_lora_config", "peek_class", "build_module", "configure_train_mode",
    "preserve_fp32_modules", "get_fsdp_ignored_module_names",
)
print(json.dumps({
    "version": vllm_omni.__version__,
    "hooks": [h for h in hooks if hasattr(DiffusionModelBase, h)],
    "rollout_output": importable("verl_omni.pipelines.diffusion_rollout_output"),
    "io_spec": importable("verl_omni.pipelines.rollout_media"),
    "request_batch": importable("vllm_omni.diffusion.worker.request_batch"),
    "marked": hasattr(Rollout, "supports_request_batch"),
    "custom_output": "custom_output" in inspect.signature(DiffusionOutput).parameters,
    "many_prompts": many,
    "guidance_scale": Params().guidance_scale,
    "zero_becomes": request.sampling_params.guidance_scale,
}))
"""
EXPECTED: dict[str | None, dict[str, Any]] = {
    "v0.1.0": {
        "version": "0.22.0",
        "hooks": ["build_module", "configure_train_mode"],
        "rollout_output": False,
        "io_spec": False,
        "request_batch": False,
        "marked": False,
        "custom_output": True,
        "many_prompts": True,
        "guidance_scale": 0.0,
        "zero_becomes": 1.0,
    },
    "v0.2.0": {
        "version": "0.24.0",
        "hooks": ["configure_trainable_params", "build_module", "configure_train_mode"],
        "rollout_output": False,
        "io_spec": False,
        "request_batch": True,
        "marked": True,
        "custom_output": True,
        "many_prompts": False,
        "guidance_scale": 0.0,
        "zero_becomes": 1.0,
    },
    "main": {
        "version": "0.27.0rc1",
        "hooks": [
            "configure_trainable_params",
            "validate_lora_config",
            "peek_class",
            "build_module",
            "configure_train_mode",
        ],
        "rollout_output": True,
        "io_spec": False,
        "request_batch": True,
        "marked": True,
        "custom_output": False,
        "many_prompts": False,
        "guidance_scale": None,
        "zero_becomes": 0.0,
    },
}
EXPECTED["v0.3.0"] = {
    **EXPECTED["main"],
    "version": "0.28.0rc1",
    "hooks": [*EXPECTED["main"]["hooks"], "preserve_fp32_modules", "get_fsdp_ignored_module_names"],
    "io_spec": True,
}


@pytest.mark.parametrize("profile", ["v0.1.0", "v0.2.0", "main", "v0.3.0"])
def test_profile_has_what_its_release_has(run_python: Any, profile: str) -> None:
    # an unset variable means main
    found = json.loads(run_python(SURVEY, kit_root(), profile=None if profile == "main" else profile))
    assert found == EXPECTED[profile]


def test_absent_module_stays_absent_beside_a_checkout_that_has_it(run_python: Any, tmp_path: Path) -> None:
    folder = tmp_path / "verl_omni" / "pipelines"
    folder.mkdir(parents=True)
    (folder / "diffusion_rollout_output.py").write_text("rollout_output = None\n")
    error = run_python(
        "import verl_omni.pipelines.diffusion_rollout_output", kit_root(), tmp_path, profile="v0.2.0", check=False
    )
    assert (
        "ModuleNotFoundError: No module named 'verl_omni.pipelines.diffusion_rollout_output' in verl-omni v0.2.0"
        in (error)
    )


def test_unknown_profile_names_the_known_ones(run_python: Any) -> None:
    error = run_python("import vllm_omni", kit_root(), profile="v9", check=False)
    assert (
        "unknown contract kit profile 'v9'; OMNI_SCAFFOLD_KIT_PROFILE takes ['main', 'v0.1.0', 'v0.2.0', 'v0.3.0']"
        in error
    )
