# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""BAGEL-7B-MoT FlowGRPO package on a CPU: what training computes is what the rollout recorded.

Nothing here needs a checkpoint or an engine. A module of a few thousand parameters stands for the model, and a loop
that calls the scheduler as ``BagelPipeline`` does stands for the upstream pipeline.
"""

from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import save_file
from torch import nn
from vllm_omni.diffusion.data import DiffusionOutput
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline

from verl_omni.pipelines.bagel_flow_grpo import BagelDiffusion, BagelPipelineWithLogProb, common
from verl_omni.pipelines.bagel_flow_grpo import bagel_model as model_file
from verl_omni.pipelines.bagel_flow_grpo.bagel_model import BagelForTraining, BagelTrainingConfig
from verl_omni.pipelines.model_base import DiffusionModelBase, VllmOmniPipelineBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

ARCHITECTURE, ALGORITHM = "OmniBagelForConditionalGeneration", "flow_grpo"
LORA_TARGETS = [
    "q_proj_moe_gen",
    "k_proj_moe_gen",
    "v_proj_moe_gen",
    "o_proj_moe_gen",
    "mlp_moe_gen.gate_proj",
    "mlp_moe_gen.up_proj",
    "mlp_moe_gen.down_proj",
]
PROMPTS = [[5, 6, 7], [9, 8, 7, 6, 5, 4, 3], [11, 12, 13, 14, 15]]
STEPS = 6  # num_inference_steps of most tests


def tiny_config() -> BagelTrainingConfig:
    """A model that runs in milliseconds, with every ratio of the real one that can go wrong kept apart."""
    return BagelTrainingConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=96,
        max_latent_size=8,
        latent_channel=3,
        start_of_image_id=91,
        end_of_image_id=92,
    )


def tiny_module(seed: int = 0) -> BagelForTraining:
    """A float32 module with random weights."""
    torch.manual_seed(seed)
    return BagelForTraining(tiny_config())


def tiny_model_config(steps: int = STEPS, **algo) -> SimpleNamespace:
    """The part of ``DiffusionModelConfig`` that the adapters read; the image is two tokens high and three wide."""
    token = 16
    return SimpleNamespace(
        architecture=ARCHITECTURE,
        algorithm=ALGORITHM,
        external_lib=None,
        local_path=None,
        lora_rank=0,
        target_modules=LORA_TARGETS,
        pipeline=SimpleNamespace(height=2 * token, width=3 * token, num_inference_steps=steps),
        algo=SimpleNamespace(**{"noise_level": 0.7, "sde_type": "sde", **algo}),
    )


def formula(steps: int) -> list[float]:
    """Noise levels of ``num_inference_steps=steps``, terminal 0 included, written out once more on purpose."""
    points = steps
    times = [1 - i / (points - 1) for i in range(points)]
    return [3.0 * t / (1 + 2.0 * t) for t in times]


def training_scheduler(model_config) -> FlowMatchSDEDiscreteScheduler:
    """The scheduler of the training side."""
    scheduler = FlowMatchSDEDiscreteScheduler()
    BagelDiffusion.set_timesteps(scheduler, model_config, "cpu")
    return scheduler


def training_inputs(module, prompts=PROMPTS, seed: int = 1, step: int = 0):
    """Inputs of one training step for ``prompts``: ``(model_inputs, negative_model_inputs, latents, timesteps)``."""
    model_config = tiny_model_config()
    timesteps = training_scheduler(model_config).timesteps.repeat(len(prompts), 1)
    latents = [trajectory(module.config, seed + i, timesteps.shape[1] + 1) for i in range(len(prompts))]
    latents = torch.stack(latents)
    inputs, negative = BagelDiffusion.prepare_model_inputs(
        module, model_config, latents, timesteps, None, None, None, None, micro_batch_of(prompts), step
    )
    return inputs, negative, latents, timesteps


def trajectory(config: BagelTrainingConfig, seed: int, length: int) -> torch.Tensor:
    """Random latents ``(length, tokens, channels)`` of a two by three image."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(length, 6, config.patch_latent_dim, generator=generator)


def micro_batch_of(prompts) -> dict:
    """The columns of a micro-batch in which the rollout hands on its prompts."""
    width = max(len(ids) for ids in prompts) + 3
    ids = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in prompts])
    mask = torch.tensor([[i < len(ids) for i in range(width)] for ids in prompts])
    return {"encoded_prompt_ids": ids, "encoded_prompt_mask": mask}


def test_both_adapters_are_registered_under_one_key():
    assert DiffusionModelBase.get_class(tiny_model_config()) is BagelDiffusion
    assert VllmOmniPipelineBase.get_class(ARCHITECTURE, ALGORITHM) is BagelPipelineWithLogProb


def test_padding_changes_nothing():
    module = tiny_module()
    inputs, _, _, _ = training_inputs(module)
    together = module(**inputs)[0]
    for i, prompt in enumerate(PROMPTS):
        alone = module(**training_inputs(module, [prompt], seed=1 + i)[0])[0]
        assert (together[i] - alone[0]).abs().max() <= 1e-6


def write_checkpoint(folder, module, **changes) -> None:
    """Write ``module`` as a checkpoint with the released names, and some tensors changed."""
    state = {**dict(model_file.WEIGHTS.tensors(module.state_dict().items())), **changes}
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    module.config.save_pretrained(str(folder))
    files = model_file.WEIGHTS.files
    for i, file in enumerate(files):
        save_file({name: state[name] for name in sorted(state)[i :: len(files)]}, folder / file)


def test_a_tensor_that_no_rule_knows_is_refused_by_name(tmp_path):
    write_checkpoint(tmp_path, tiny_module(), **{"nobody.knows.me": torch.zeros(1)})
    with pytest.raises((KeyError, ValueError), match="nobody.knows.me"):
        BagelForTraining.from_pretrained(str(tmp_path), torch_dtype=torch.float32)


def test_a_prompt_that_training_would_not_see_is_refused(pipeline):
    for name, value, reason in (
        ("negative_prompt", "ugly", "ugly"),
        ("multi_modal_data", {"image": torch.zeros(3, 2, 2)}, "multi_modal_data"),
        ("extra_args", {"multi_modal_data": {"image": torch.zeros(3, 2, 2)}}, "multi_modal_data"),
    ):
        request = request_for()
        request.prompts[0][name] = value
        with pytest.raises(ValueError, match=reason):
            pipeline(request)


def velocity_of(sample: torch.Tensor) -> torch.Tensor:
    """The velocity field that both sides see where the model itself does not matter."""
    return 0.3 * sample + 0.1 * sample.roll(1, dims=-1).sin()


class KnownVelocity(nn.Module):
    """A training module that predicts :func:`velocity_of`."""

    def __init__(self):
        super().__init__()
        self.config = tiny_config()

    def forward(self, hidden_states, **kwargs):
        return (velocity_of(hidden_states),)


class Letters:
    """A tokenizer with one id for each character, and one for each special token."""

    def encode(self, text, add_special_tokens=True):
        return list(map(ord, text))

    def convert_tokens_to_ids(self, token):
        return 200_000 + len(token)


def encoded(text: str) -> list[int]:
    """Ids that the upstream pipeline embeds for a prompt."""
    return [200_000 + 12, *map(ord, text), 200_000 + 10]


def upstream_loop(self, request, *args, **kwargs):
    """Denoise as the upstream pipeline does: its steps, its call of the scheduler, its rank of the latents."""
    self.embed_tokens(torch.tensor(encoded(request.prompts[0]["prompt"])))
    points = request.sampling_params.num_inference_steps
    sigmas = torch.linspace(1, 0, points)
    sigmas = 3.0 * sigmas / (1 + 2.0 * sigmas)
    sample = trajectory(tiny_config(), request.sampling_params.seed, 1)[0]
    torch.manual_seed(request.sampling_params.seed)
    for i in range(points - 1):
        outcome = self.scheduler.step(
            velocity_of(sample), sigmas[i], sample, sigmas[i] - sigmas[i + 1], **self.scheduler_kwargs
        )
        sample = outcome.prev_sample
    return DiffusionOutput(output=torch.zeros(3, 2, 2))


@pytest.fixture
def pipeline(monkeypatch) -> BagelPipelineWithLogProb:
    """The rollout adapter over an upstream pipeline that has no weights and runs :func:`upstream_loop`."""

    def without_weights(self, **kwargs):
        nn.Module.__init__(self)
        self.tokenizer, self.embed_tokens = Letters(), nn.Identity()
        self.scheduler, self.scheduler_kwargs = None, {}

    monkeypatch.setattr(BagelPipeline, "__init__", without_weights)
    monkeypatch.setattr(BagelPipeline, "forward", upstream_loop)
    return BagelPipelineWithLogProb(od_config=None)


def request_for(steps=STEPS, seed=3, **extra_args):
    """The part of a rollout request that pipeline and adapter read."""
    prompt = {"prompt_token_ids": [1, 2, 3], "prompt": "a sign"}
    sampling_params = SimpleNamespace(
        height=32,
        width=48,
        num_inference_steps=steps,
        max_sequence_length=None,
        seed=seed,
        generator=None,
        return_trajectory_latents=False,
        extra_args={"logprobs": True, "noise_level": 0.7, "sde_type": "sde", "global_steps": 1, **extra_args},
    )
    return SimpleNamespace(prompts=[prompt], sampling_params=sampling_params)


def roll_out(pipeline, **arguments):
    """Run one request; returns what reaches training, ``(latents, timesteps, log_probs)``, and the request."""
    request = request_for(**arguments)
    output = pipeline(request)
    recorded = (getattr(output, f"trajectory_{name}") for name in ("latents", "timesteps", "log_probs"))
    return (*recorded, request)


def test_the_ids_that_the_pipeline_embeds_reach_training(pipeline):
    request = request_for()
    output = pipeline(request)
    ids, mask = (output.output["metadata"]["rl"][f"encoded_prompt_{name}"] for name in ("ids", "mask"))
    assert ids.shape == mask.shape == (1, common.MAX_PROMPT_LENGTH)
    assert ids[mask].tolist() == encoded("a sign") and not ids[~mask].any()
    request.sampling_params.max_sequence_length = 4
    with pytest.raises(ValueError, match="leaves room for 4"):
        pipeline(request)
    pipeline.tokenizer.encode = lambda *args, **kwargs: [7]
    with pytest.raises(RuntimeError, match="encoded another prompt"):
        pipeline(request_for())


@pytest.mark.parametrize("steps", [3, 5, 15, 50])
def test_both_sides_walk_the_same_schedule(pipeline, steps):
    expected = torch.tensor(formula(steps))
    scheduler = training_scheduler(tiny_model_config(steps))
    torch.testing.assert_close(scheduler.sigmas.float(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(scheduler.timesteps.float(), expected[:-1], rtol=0, atol=1e-6)

    _, timesteps, _, request = roll_out(pipeline, steps=steps, sde_window_size=len(expected) - 1)
    torch.testing.assert_close(timesteps[0], scheduler.timesteps, rtol=0, atol=0)
    assert request.sampling_params.num_inference_steps == steps


@pytest.mark.parametrize("sde_type", ["sde", "cps", "dance_sde"])
def test_every_window_position_is_recomputed_to_the_same_log_probs(pipeline, sde_type):
    module, model_config = KnownVelocity(), tiny_model_config(sde_type=sde_type)
    sigmas = formula(STEPS)
    for begin in range(len(sigmas) - 2):
        window = {"sde_window_size": 2, "sde_window_range": [begin, begin + 2]}
        latents, timesteps, log_probs, _ = roll_out(pipeline, sde_type=sde_type, **window)
        assert latents.shape[:2] == (1, 3)
        assert timesteps[0].tolist() == pytest.approx(sigmas[begin : begin + 2], abs=1e-6)
        scheduler, recorded = training_scheduler(model_config), {"all_latents": latents, "all_timesteps": timesteps}
        for step in range(2):
            inputs, negative = BagelDiffusion.prepare_model_inputs(
                module, model_config, latents, timesteps, None, None, None, None, micro_batch_of([[1, 2, 3]]), step
            )
            log_prob, _, _, _ = BagelDiffusion.forward_and_sample_previous_step(
                module, scheduler, model_config, inputs, negative, recorded, step
            )
            torch.testing.assert_close(log_prob, log_probs[:, step], rtol=1e-5, atol=1e-6)


@pytest.fixture
def engine(pipeline, monkeypatch) -> dict[str, torch.Tensor]:
    """What the upstream pipeline was given to load, by the names it was given under."""
    received = {}

    def load_weights(self, weights):
        received.update(weights)
        return set(received)

    monkeypatch.setattr(BagelPipeline, "load_weights", load_weights)
    return received


def lora_config(**changes) -> LoraConfig:
    return LoraConfig(**{"r": 2, "lora_alpha": 6, "target_modules": LORA_TARGETS, **changes})


@pytest.mark.parametrize("lora", [False, True])
def test_weights_of_the_actor_reach_the_engine_under_checkpoint_names(pipeline, engine, lora):
    module = tiny_module()
    expected = dict(model_file.WEIGHTS.tensors(module.state_dict().items()))
    if lora:
        module.add_adapter(lora_config())
    sent = {f"transformer.{name}": tensor for name, tensor in module.state_dict().items() if ".lora_" not in name}
    assert any(".base_layer." in name for name in sent) == lora
    assert pipeline.load_weights(iter(sent.items())) == set(expected)
    assert engine.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(engine[name], tensor), name


class LinearBase(nn.Module):
    """A linear module of the engine, recognised by this name of its class."""

    def __init__(self):
        super().__init__()
        self.input_size, self.output_size = 5, 7
        self.weight = nn.Parameter(torch.zeros(7, 5))


@pytest.fixture
def folding(pipeline, engine, tmp_path) -> BagelPipelineWithLogProb:
    """The rollout adapter over a checkpoint of random weights, with one module that generation does not use."""
    write_checkpoint(tmp_path, tiny_module())
    pipeline.od_config = SimpleNamespace(model=str(tmp_path))
    parent = pipeline
    for name in ["model", *"connector.".strip(".").split(".")]:
        parent.add_module(name, nn.Module())
        parent = getattr(parent, name)
    parent.unused = LinearBase()
    return pipeline


def lora_update(seed: int) -> dict[str, torch.Tensor]:
    """Random LoRA matrices for every target, as the actor sends them."""
    module = tiny_module()
    torch.manual_seed(seed)
    module.add_adapter(lora_config(init_lora_weights=False))
    matrices = {name: tensor for name, tensor in module.state_dict().items() if ".lora_" in name}
    return {f"transformer.{name.replace('.default.', '.')}": tensor for name, tensor in matrices.items()}


PLAIN_LORA = {"r": 2, "lora_alpha": 6, "target_modules": LORA_TARGETS}


def test_each_push_is_folded_into_the_checkpoint_anew(folding, engine):
    base = tiny_module().state_dict()
    folding.load_weights((f"transformer.{name}", tensor) for name, tensor in base.items())
    for seed in (1, 2, 2):
        update, merged = lora_update(seed), {}
        engine.clear()
        left, _ = folding.map_lora_update_to_engine(update, PLAIN_LORA)
        assert len(left) == 2 and not any(tensor.any() for tensor in left.values())
        for name in (name.removesuffix(".lora_A.weight") for name in update if name.endswith(".lora_A.weight")):
            down, up = (update[f"{name}.lora_{side}.weight"] for side in "AB")
            target = name.removeprefix("transformer.") + ".weight"
            merged[target] = base[target] + 6 / 2 * up @ down
        expected = dict(model_file.WEIGHTS.tensors(merged.items()))
        assert expected and engine.keys() == expected.keys()
        for source, folded in engine.items():
            torch.testing.assert_close(folded, expected[source], rtol=1e-5, atol=1e-6, msg=source)
