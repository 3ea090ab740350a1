"""Both topologies of a package behind another stage, in the real vllm-omni: data and rollouts get the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import kit_root
from scaffold.render.names import model_name
from tests.engine_worker import answers, engine_version_is_there

pytestmark = [pytest.mark.rollout, pytest.mark.slow, pytest.mark.upstream]
VERSION = "0.30.0"
ROOT = Path(__file__).resolve().parents[2]
LENGTH = 5
# What the stage before would give is made up in ``output``, with the prompt that asked for it; what becomes of it is
# vllm-omni's.
MADE = {
    # A language model whose states of 256 query tokens and of the prompt are handed on.
    "MingImageDiffusionPipeline": """
patch, end = 157157, 157159
ids = [*range(10, 10 + length), 157158, *[patch] * 256, end]
made = {"final_hidden_states": torch.randn(len(ids), 2048)}
made |= {f"hidden_states_{layer}": torch.randn(len(ids), 2048) for layer in (5, 12, 20)}
output = types.SimpleNamespace(prompt_token_ids=ids, outputs=[types.SimpleNamespace(multimodal_output=made)])
asked = {"prompt": "a fox"}
place, tensors, plain = "extra", ["query_hidden_states", "direct_hidden_states"], []
shape = ("direct_hidden_states", (length, 3 * 2048))
""",
    # One whose states of the prompt and of a picture's tokens are; of the last of these it has none.
    "MammothModa2DiTPipeline": """
from vllm_omni.model_extras import build_text_to_image_prompt
ids, drawn = list(range(10, 10 + length)), [152072, 152073, 152064, 152074, 152075, 152064, 152080]
made = {"latent": torch.randn(length + len(drawn) - 1, 32).bfloat16()}
completion = types.SimpleNamespace(cumulative_token_ids=drawn, multimodal_output=made)
output = types.SimpleNamespace(prompt_token_ids=ids, outputs=[completion])
asked = build_text_to_image_prompt("MammothModa2DiTPipeline", {"prompt": "a fox"}, 32, 32)
place, tensors, plain = "additional_information", ["full_hidden_states"], ["full_token_ids", "answer_start_index"]
shape = ("full_hidden_states", (length + 6, 32))
""",
}
CHECKPOINTS = {
    "MingImageDiffusionPipeline": {
        "model_index.json": '{"_class_name": "MingImageDiffusionPipeline"}',
        "transformer/config.json": '{"_class_name": "DiffusionTransformer"}',
    },
    "MammothModa2DiTPipeline": {
        "config.json": '{"model_type": "mammothmoda2", "architectures": ["Mammothmoda2Model"],'
        ' "llm_config": {"model_type": "mammothmoda2_qwen2_5_vl", "text_config": {"hidden_size": 32}}}',
    },
}
PROGRAM = """
import importlib, json, runpy, sys, types
from pathlib import Path
from unittest import mock
(task,) = json.loads(Path(sys.argv[1]).read_text())
out, kit, folder = (Path(task[name]) for name in ("out", "kit", "folder"))
pipeline, length = task["pipeline"], task["length"]
sys.path.insert(0, task["source"])
from scaffold.verify.rollout.engine_side import settings, sources
settings.before_imports()
PACKAGE = f"verl_omni.pipelines.{task['package']}"
sources.install_package(out, PACKAGE)
sources.install_kit(kit)
import torch
stage = importlib.import_module(f"{PACKAGE}.stage_inputs")
from vllm_omni.config.pipeline_registry import OMNI_PIPELINES, resolve_pipeline_config
from vllm_omni.config.resolver import resolve_omni_config

def stages(deploy):
    found = resolve_omni_config(str(folder), trust_remote_code=False, deploy_config_path=str(deploy), cli_overrides={},
                                stage_overrides=None, strategy_config_path=None)
    return found.pipeline_config.model_type, found.stage_configs

(deploy,) = out.glob("examples/flowgrpo_trainer/*/*_deploy_config.yaml")
assert stage.ALONE in OMNI_PIPELINES  # by the import of the package
stage.register_stage_alone()
name, (alone,) = stages(deploy)
kept = alone.stage_pipeline_config
assert name == stage.ALONE
assert kept.execution_type.name == "DIFFUSION" and kept.final_output, kept
assert (kept.stage_id, kept.input_sources, kept.custom_process_input_func) == (0, (), None)
assert kept.model_arch == pipeline

sys.modules["datasets"] = types.ModuleType("datasets")
(script,) = out.glob("examples/flowgrpo_trainer/data_process/*_prompts.py")
from verl_omni.pipelines.flow_grpo_runtime.stage_recording import recording_config
recording = recording_config(runpy.run_path(str(script))["STAGES"], "", str(folder))
name, (first, last) = stages(recording)
assert name == stage.WHOLE and first.stage_pipeline_config.execution_type.name == "LLM_AR"
recorder = last.diffusion_config.custom_pipeline_args["pipeline_class"]
assert recorder == "verl_omni.pipelines.flow_grpo_runtime.stage_inputs.StageInputsRecorder"

exec(task["made"])
bridge = resolve_pipeline_config(stage.WHOLE).stages[stage.POSITION].custom_process_input_func
module, _, function = bridge.rpartition(".")
handed = getattr(importlib.import_module(module), function)([output], asked)
(handed,) = handed if isinstance(handed, list) else [handed]

from vllm_omni.diffusion.data import OmniDiffusionConfig
from vllm_omni.diffusion.request import OmniDiffusionRequest
from vllm_omni.inputs.data import OmniDiffusionSamplingParams
from scaffold.verify.rollout.engine_side.engine import _free_port
from scaffold.verify.rollout.engine_side.transport import KitTransport
config = OmniDiffusionConfig.from_kwargs(model=str(folder), model_class_name=pipeline,
                                         dtype=torch.float32, enforce_eager=True, num_gpus=1, master_port=_free_port())
with mock.patch("vllm_omni.diffusion.worker.diffusion_worker.decorate_logs"):
    worker = KitTransport().worker_class()(local_rank=0, rank=0, od_config=config, skip_load_model=True)
worker.re_init_pipeline({"pipeline_class": recorder})
path = str(folder / "row.safetensors")
params = OmniDiffusionSamplingParams(height=64, width=64, extra_args={stage.STAGE_INPUTS: path})
worker.execute_model(OmniDiffusionRequest(prompt=handed, sampling_params=params, request_id="one"), config)

prompt, params = {"prompt_token_ids": [1]}, types.SimpleNamespace(extra_args={stage.STAGE_INPUTS: path})
stage.give_stage_inputs(prompt, params)
given = prompt[place]
assert given.keys() == handed[place].keys()
for key in tensors:
    assert torch.equal(given[key], handed[place][key]) and given[key].dtype == handed[place][key].dtype, key
for key in plain:
    assert given[key] == handed[place][key], key
assert given[shape[0]].shape == shape[1]
print("RESULT " + json.dumps({"case": "stages", "tokens": length}))
"""


@pytest.mark.parametrize("pipeline", MADE)
def test_what_stands_before_is_recorded_and_the_stage_runs_alone(
    scaffold_cli: Callable[..., Any], tmp_path: Path, pipeline: str
) -> None:
    engine_version_is_there(VERSION)
    out, checkpoint, name = tmp_path / "out", tmp_path / "checkpoint", model_name(pipeline)
    scaffold_cli("new", name, "--pipeline", pipeline, "--vllm-omni", VERSION, "--patch", "--out", out).success()
    for file, text in CHECKPOINTS[pipeline].items():
        (checkpoint / file).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / file).write_text(text, encoding="utf-8")
    script = tmp_path / "stages.py"
    script.write_text(PROGRAM, encoding="utf-8")
    task = {"source": str(ROOT), "out": str(out), "kit": str(kit_root()), "folder": str(checkpoint)}
    task |= {"pipeline": pipeline, "package": f"{name}_flow_grpo", "made": MADE[pipeline], "length": LENGTH}
    assert answers(VERSION, script, [task], tmp_path)["stages"]["tokens"] == LENGTH
