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

import copy
import inspect
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import save_file
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorData, NonTensorStack
from torch import nn
from torch.utils.checkpoint import checkpoint
from vllm_omni.diffusion.data import DiffusionOutput
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline

from verl_omni.pipelines.bagel_flow_grpo import BagelDiffusion, BagelPipelineWithLogProb
from verl_omni.pipelines.bagel_flow_grpo import bagel_model as model_file
from verl_omni.pipelines.bagel_flow_grpo.bagel_model import BagelForTraining, BagelTrainingConfig
from verl_omni.pipelines.bagel_flow_grpo.common import CFG_DEFAULTS, pick_sde_window
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


@pytest.fixture(autouse=True)
def one_thread():
    """Modules this small only lose time to more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# Small stand-ins


def tiny_config(**changes) -> BagelTrainingConfig:
    """A model that runs in milliseconds, with every ratio of the real one that can go wrong kept apart."""
    values = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 96,
        "max_latent_size": 8,
        "latent_channel": 3,
        "start_of_image_id": 91,
        "end_of_image_id": 92,
    }
    return BagelTrainingConfig(**{**values, **changes})


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
    """A micro-batch with one id sequence per sample."""
    return {"prompt_token_ids": [list(ids) for ids in prompts]}


# Registration


def test_both_adapters_are_registered_under_one_key():
    assert DiffusionModelBase.get_class(tiny_model_config()) is BagelDiffusion
    assert VllmOmniPipelineBase.get_class(ARCHITECTURE, ALGORITHM) is BagelPipelineWithLogProb


# Training module


def test_prepared_inputs_are_the_arguments_of_forward():
    module = tiny_module()
    inputs, negative, _, _ = training_inputs(module)
    parameters = inspect.signature(module.forward).parameters
    required = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    assert set(inputs) == set(parameters)
    assert required <= set(negative) <= set(parameters)


@pytest.mark.parametrize("branch", [0, 1])
def test_forward_returns_one_finite_velocity_per_latent(branch):
    module = tiny_module()
    inputs = training_inputs(module)[branch]
    outputs = module(**inputs)
    assert isinstance(outputs, tuple) and len(outputs) == 1
    assert outputs[0].shape == inputs["hidden_states"].shape
    assert outputs[0].isfinite().all()


def test_padding_changes_nothing():
    module = tiny_module()
    inputs, _, _, _ = training_inputs(module)
    together = module(**inputs)[0]
    for i, prompt in enumerate(PROMPTS):
        alone = module(**training_inputs(module, [prompt], seed=1 + i)[0])[0]
        assert (together[i] - alone[0]).abs().max() <= 1e-6


def test_prompt_and_noise_level_matter():
    module = tiny_module()
    velocity = module(**training_inputs(module)[0])[0]
    other_prompt = module(**training_inputs(module, [ids[::-1] for ids in PROMPTS])[0])[0]
    inputs, _, latents, _ = training_inputs(module, step=2)
    other_level = module(**{**inputs, "hidden_states": latents[:, 0]})[0]
    for other in (other_prompt, other_level):
        assert (velocity - other).abs().amax(dim=(1, 2)).min() > 1e-5


def test_checkpointing_recomputes_and_keeps_the_gradients():
    plain = tiny_module()
    recomputing = copy.deepcopy(plain)
    calls = []

    def counting_checkpoint(function, *args, **kwargs):
        calls.append(kwargs.get("use_reentrant"))
        return checkpoint(function, *args, **kwargs)

    recomputing.enable_gradient_checkpointing(counting_checkpoint)
    inputs = training_inputs(plain)[0]
    for module in (plain, recomputing):
        module(**inputs)[0].square().mean().backward()
    assert calls == [False] * plain.config.num_hidden_layers
    for (name, expected), actual in zip(plain.named_parameters(), recomputing.parameters(), strict=True):
        if expected.grad is None:
            assert actual.grad is None, name
        else:
            torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-5, atol=1e-8, msg=name)

    with torch.no_grad():
        recomputing(**inputs)
    assert len(calls) == plain.config.num_hidden_layers


def test_fsdp_wraps_classes_that_exist():
    module = tiny_module()
    present = {type(child).__name__ for child in module.modules()}
    assert module._no_split_modules and set(module._no_split_modules) <= present


# LoRA


def lora_config(**changes) -> LoraConfig:
    return LoraConfig(**{"r": 2, "lora_alpha": 4, "target_modules": LORA_TARGETS, **changes})


def test_lora_binds_to_the_declared_targets_and_nothing_else():
    module = tiny_module()
    linears = [name for name, child in module.named_modules() if isinstance(child, nn.Linear)]
    expected = {name for name in linears for target in LORA_TARGETS if name == target or name.endswith("." + target)}
    module.add_adapter(lora_config())
    bound = {name for name, child in module.named_modules() if hasattr(child, "lora_A")}
    assert bound == expected
    assert len(bound) == len(LORA_TARGETS) * module.config.num_hidden_layers


def test_lora_can_be_switched_off_and_on():
    module = tiny_module()
    inputs = training_inputs(module)[0]
    base = module(**inputs)[0]
    module.add_adapter(lora_config(init_lora_weights=False))
    adapted = module(**inputs)[0]
    module.disable_adapters()
    disabled = module(**inputs)[0]
    module.enable_adapters()
    assert (adapted - base).abs().max() > 1e-5
    torch.testing.assert_close(disabled, base)
    torch.testing.assert_close(module(**inputs)[0], adapted)


def test_every_lora_b_learns():
    module = tiny_module()
    module.add_adapter(lora_config())
    module(**training_inputs(module)[0])[0].square().mean().backward()
    gradients = {name: parameter.grad for name, parameter in module.named_parameters() if ".lora_B." in name}
    assert gradients
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []


def test_training_without_lora_frees_one_pathway_in_float32():
    module = tiny_module().to(torch.bfloat16)
    BagelDiffusion.configure_trainable_params(module, tiny_model_config())
    for name, parameter in module.named_parameters():
        free = any(part in name for part in ("moe_gen",))
        assert parameter.requires_grad == free, name
        assert parameter.dtype == (torch.float32 if free else torch.bfloat16), name


# Checkpoint


def write_checkpoint(folder, module, **changes) -> None:
    """Write ``module`` as a checkpoint with the released names; a change to None takes a tensor out."""
    state = {model_file.to_checkpoint_key(name): tensor for name, tensor in module.state_dict().items()}
    state = {name: tensor.contiguous() for name, tensor in {**state, **changes}.items() if tensor is not None}
    module.config.save_pretrained(str(folder))
    files = model_file.CHECKPOINT_FILES
    for i, file in enumerate(files):
        save_file({name: state[name] for name in sorted(state)[i :: len(files)]}, folder / file)


def test_key_map_is_invertible_and_has_no_dead_rule():
    names = list(tiny_module().state_dict())
    sources = [model_file.to_checkpoint_key(name) for name in names]
    assert len(set(sources)) == len(names)
    assert [model_file.to_training_key(source) for source in sources] == names
    used = {next(rule for rule in model_file.KEY_MAP if source.startswith(rule[0])) for source in sources}
    assert used == set(model_file.KEY_MAP)


def test_checkpoint_is_loaded_to_the_same_function(tmp_path):
    module = tiny_module()
    write_checkpoint(tmp_path, module, **{"connector.weight": torch.zeros(3)})
    loaded = BagelForTraining.from_pretrained(str(tmp_path), torch_dtype=torch.float32)
    assert loaded.config == module.config
    inputs = training_inputs(module)[0]
    torch.testing.assert_close(loaded(**inputs)[0], module(**inputs)[0], rtol=0, atol=0)


def test_saved_module_is_a_checkpoint_again(tmp_path):
    module = tiny_module()
    module.save_pretrained(str(tmp_path))
    loaded = BagelForTraining.from_pretrained(str(tmp_path), torch_dtype=torch.float32)
    assert loaded.config == module.config
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], tensor, rtol=0, atol=0, msg=name)


def test_position_table_decides_the_grid(tmp_path):
    module = tiny_module()
    write_checkpoint(tmp_path, module)
    tiny_config(max_latent_size=5).save_pretrained(str(tmp_path))
    loaded = BagelForTraining.from_pretrained(str(tmp_path), torch_dtype=torch.float32)
    assert loaded.config.max_latent_size == module.config.max_latent_size


@pytest.mark.parametrize("fault", ["missing", "unexpected", "misshaped"])
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(tmp_path, fault):
    module = tiny_module()
    name = next(name for name, _ in module.layers[-1].named_parameters(prefix=f"layers.{len(module.layers) - 1}"))
    source = model_file.to_checkpoint_key(name)
    if fault == "unexpected":
        source = source.replace("layers.", "layers.9", 1)
    write_checkpoint(tmp_path, module, **{source: None if fault == "missing" else torch.zeros(1)})
    with pytest.raises((KeyError, ValueError)) as error:
        BagelForTraining.from_pretrained(str(tmp_path), torch_dtype=torch.float32)
    assert source in str(error.value)


def test_a_tensor_that_no_rule_knows_is_refused_by_name(tmp_path):
    write_checkpoint(tmp_path, tiny_module(), **{"nobody.knows.me": torch.zeros(1)})
    with pytest.raises((KeyError, ValueError), match="nobody.knows.me"):
        BagelForTraining.from_pretrained(str(tmp_path), torch_dtype=torch.float32)


# Prompts


@pytest.mark.parametrize("form", ["list", "stack", "rows", "row"])
def test_prompt_ids_come_in_every_form_of_the_engine(form):
    prompts = PROMPTS if form in ("list", "stack") else [[4, 5, 6], [7, 8, 9]] if form == "rows" else [[4, 5, 6]]
    column = {
        "list": lambda: {"prompt_token_ids": prompts},
        "stack": lambda: TensorDict(
            {"prompt_token_ids": NonTensorStack(*(NonTensorData(ids) for ids in prompts))}, batch_size=[len(prompts)]
        ),
        "rows": lambda: {"prompt_token_ids": torch.tensor(prompts)},
        "row": lambda: {"prompt_token_ids": torch.tensor(prompts[0])},
    }[form]()
    ids, mask = BagelDiffusion._prompt_token_ids_to_batch(column, torch.device("cpu"))
    width = max(map(len, prompts))
    assert ids.shape == (len(prompts), width) and ids.dtype == torch.long
    for row, prompt in enumerate(prompts):
        assert ids[row, : len(prompt)].tolist() == list(prompt)
        if mask is not None:
            assert mask[row].tolist() == [i < len(prompt) for i in range(width)]
    assert mask is not None or len(set(map(len, prompts))) == 1


def test_a_batch_without_the_prompt_column_is_refused_by_name():
    module = tiny_module()
    latents = trajectory(module.config, 0, 3)[None]
    arguments = (latents, torch.tensor([[1.0, 0.5]]), None, None, None, None, {"prompts": torch.zeros(1, 3)}, 0)
    with pytest.raises((KeyError, ValueError), match="prompt_token_ids"):
        BagelDiffusion.prepare_model_inputs(module, tiny_model_config(), *arguments)


class CharacterTokenizer:
    """A tokenizer with one id for each character and one for each special token."""

    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]

    def convert_tokens_to_ids(self, token):
        return 1000 + self.special.index(token) if token in self.special else None

    def convert_ids_to_tokens(self, token_id):
        return self.special[token_id - 1000] if token_id >= 1000 else chr(token_id)

    def encode(self, text, add_special_tokens=True):
        return [ord(character) for character in text]

    def decode(self, ids, **kwargs):
        return "".join(map(self.convert_ids_to_tokens, ids))


@pytest.fixture(scope="module")
def preprocessor() -> dict:
    """The names in the data script, which is no module of a package."""
    root = Path(__file__).resolve().parents[2]
    return runpy.run_path(str(root / "examples/flowgrpo_trainer/data_process/bagel_ocr.py"))


def test_preprocessor_keeps_both_ends_and_never_cuts(preprocessor):
    tokenizer, encode = CharacterTokenizer(), preprocessor["tokenize_bagel_prompt"]
    expected = [
        tokenizer.convert_tokens_to_ids("<|im_start|>"),
        *map(ord, "a sign"),
        tokenizer.convert_tokens_to_ids("<|im_end|>"),
    ]
    assert encode(tokenizer, " a sign ", len(expected)) == expected
    with pytest.raises(preprocessor["PromptTooLongError"]):
        encode(tokenizer, " a sign ", len(expected) - 1)


def test_preprocessor_names_the_line_it_cannot_use(preprocessor, tmp_path):
    (tmp_path / "train.txt").write_text('a sign that says "OPEN"\n\nno quotation\n')
    arguments = ("train", CharacterTokenizer(), 99, "error", "ocr")
    with pytest.raises(ValueError, match=r"train\.txt:3: "):
        preprocessor["read_split"](str(tmp_path / "train.txt"), *arguments)
    (tmp_path / "train.txt").write_text('a sign that says "OPEN"\n')
    (row,) = preprocessor["read_split"](str(tmp_path / "train.txt"), *arguments)
    assert row["reward_model"]["ground_truth"] == "OPEN"
    assert row["prompt"] == [{"role": "user", "content": 'a sign that says "OPEN"'}]


def test_rollout_encodes_the_ids_that_training_reads(preprocessor, pipeline):
    text = 'a sign that says "OPEN"'
    pipeline.tokenizer = CharacterTokenizer()
    ids = preprocessor["tokenize_bagel_prompt"](pipeline.tokenizer, text)
    request = request_for(ids)
    pipeline._ensure_bagel_prompt_text(request)
    assert request.prompts[0]["prompt"] == text


# Rollout


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


def upstream_loop(self, request, *args, **kwargs):
    """Denoise as the upstream pipeline does: its number of steps, its call of the scheduler, unbatched latents."""
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
    request.final_latents = sample
    return DiffusionOutput(output=torch.zeros(3, 2, 2))


@pytest.fixture
def pipeline(monkeypatch) -> BagelPipelineWithLogProb:
    """The rollout adapter over an upstream pipeline that has no weights and runs :func:`upstream_loop`."""

    def without_weights(self, **kwargs):
        nn.Module.__init__(self)
        self.scheduler, self.scheduler_kwargs = None, {}

    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(BagelPipeline, "__init__", without_weights)
    monkeypatch.setattr(BagelPipeline, "forward", upstream_loop)
    return BagelPipelineWithLogProb(od_config=None)


def request_for(prompt_token_ids=(1, 2, 3), steps: int = STEPS, seed: int = 3, text: str | None = None, **extra_args):
    """The part of a rollout request that pipeline and adapter read."""
    prompt = {"prompt_token_ids": list(prompt_token_ids)}
    if text is not None:
        prompt["prompt"] = text
    sampling_params = SimpleNamespace(
        height=32,
        width=48,
        num_inference_steps=steps,
        seed=seed,
        return_trajectory_latents=False,
        extra_args={"logprobs": True, "noise_level": 0.7, "sde_type": "sde", **extra_args},
    )
    return SimpleNamespace(prompts=[prompt], sampling_params=sampling_params)


def roll_out(pipeline, **arguments):
    """Run one request; returns what reaches training, ``(latents, timesteps, log_probs)``, and the request."""
    request = request_for(text="a sign", **arguments)
    output = pipeline(request)
    recorded = (getattr(output, f"trajectory_{name}") for name in ("latents", "timesteps", "log_probs"))
    return (*recorded, request)


def recomputed_log_probs(latents, timesteps, model_config) -> torch.Tensor:
    """Log-probs ``(B, T)`` of a recorded trajectory as the training adapter computes them."""
    module, scheduler = KnownVelocity(), training_scheduler(model_config)
    recorded = {"all_latents": latents, "all_timesteps": timesteps}
    log_probs = []
    for step in range(timesteps.shape[1]):
        inputs, negative = BagelDiffusion.prepare_model_inputs(
            module, model_config, latents, timesteps, None, None, None, None, micro_batch_of([[1, 2, 3]]), step
        )
        log_prob, _, _, _ = BagelDiffusion.forward_and_sample_previous_step(
            module, scheduler, model_config, inputs, negative, recorded, step
        )
        log_probs.append(log_prob)
    return torch.stack(log_probs, dim=1)


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
@pytest.mark.parametrize("size", [1, 2])
def test_every_window_position_is_recomputed_to_the_same_log_probs(pipeline, size, sde_type):
    model_config = tiny_model_config(sde_type=sde_type)
    sigmas = formula(STEPS)
    for begin in range(len(sigmas) - size):
        window = {"sde_window_size": size, "sde_window_range": [begin, begin + size]}
        latents, timesteps, log_probs, _ = roll_out(pipeline, sde_type=sde_type, **window)
        assert latents.shape[:2] == (1, size + 1)
        assert log_probs.shape == timesteps.shape == (1, size)
        assert latents.dtype == log_probs.dtype == torch.float32
        assert timesteps[0].tolist() == pytest.approx(sigmas[begin : begin + size], abs=1e-6)
        recomputed = recomputed_log_probs(latents, timesteps, model_config)
        torch.testing.assert_close(recomputed, log_probs, rtol=1e-5, atol=1e-6)


def test_without_a_window_every_step_is_recorded(pipeline):
    latents, timesteps, log_probs, _ = roll_out(pipeline)
    assert log_probs.shape == (1, len(formula(STEPS)) - 1)
    recomputed = recomputed_log_probs(latents, timesteps, tiny_model_config())
    torch.testing.assert_close(recomputed, log_probs, rtol=1e-5, atol=1e-6)


def test_without_noise_the_rollout_is_the_plain_integration(pipeline):
    finals = [roll_out(pipeline, noise_level=0.0, logprobs=False)[-1].final_latents for _ in range(2)]
    torch.testing.assert_close(*finals, rtol=0, atol=0)
    sample, sigmas = trajectory(tiny_config(), 3, 1)[0], formula(STEPS)
    for now, following in zip(sigmas[:-1], sigmas[1:], strict=True):
        sample = sample + (following - now) * velocity_of(sample)
    torch.testing.assert_close(finals[0].reshape(sample.shape), sample, rtol=1e-4, atol=1e-5)


def test_noise_differs_between_seeds_and_the_window_does_not(pipeline):
    window = {"sde_window_size": 2, "sde_window_range": [0, len(formula(STEPS)) - 1]}
    first, second = (roll_out(pipeline, seed=seed, **window) for seed in (3, 4))
    torch.testing.assert_close(first[1], second[1], rtol=0, atol=0)
    assert not torch.equal(first[0], second[0])


def test_only_the_upstream_pipeline_seeds_the_generator(pipeline, monkeypatch):
    seeds = []
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    roll_out(pipeline, seed=5, sde_window_size=2)
    assert seeds == [5]


def test_an_upstream_schedule_that_is_one_step_off_is_refused(pipeline, monkeypatch):
    def one_step_more(self, request, *args, **kwargs):
        request.sampling_params.num_inference_steps += 1
        return upstream_loop(self, request, *args, **kwargs)

    monkeypatch.setattr(BagelPipeline, "forward", one_step_more)
    with pytest.raises((RuntimeError, ValueError)):
        roll_out(pipeline, sde_window_size=2)


def test_window_is_drawn_once_and_fits(monkeypatch):
    for rank in range(8):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        begin, end = pick_sde_window(2, [1, 7])
        assert 1 <= begin and end == begin + 2 <= 7
        assert pick_sde_window(2, (1, 7)) == (begin, end)
    assert pick_sde_window(2, None) == (0, 2)
    assert pick_sde_window(3, (4, 5)) == (4, 7)
    assert pick_sde_window(None, (0, 7)) is None


# Guidance


class TwoBranches(KnownVelocity):
    """Predicts one velocity with text and another without."""

    def forward(self, hidden_states, text_token_ids=None, **kwargs):
        plain = velocity_of(hidden_states)
        return (plain if text_token_ids is None else plain + hidden_states.cos(),)


def test_guidance_is_what_the_rollout_applies():
    model_config, module = tiny_model_config(), TwoBranches()
    inputs, negative, latents, timesteps = training_inputs(module, step=1)
    scheduler, recorded = training_scheduler(model_config), {"all_latents": latents, "all_timesteps": timesteps}
    log_prob, mean, _, _ = BagelDiffusion.forward_and_sample_previous_step(
        module, scheduler, model_config, inputs, negative, recorded, 1
    )

    without = velocity_of(latents[:, 1])
    with_text = without + latents[:, 1].cos()
    guided = without + CFG_DEFAULTS["cfg_text_scale"] * (with_text - without)
    dims = (1, 2)
    scale = with_text.norm(dim=dims, keepdim=True) / (guided.norm(dim=dims, keepdim=True) + 1e-08)
    guided = guided * scale.clamp(min=CFG_DEFAULTS["cfg_renorm_min"], max=1.0)
    _, expected_log_prob, expected_mean, _ = scheduler.sample_previous_step(
        sample=latents[:, 1],
        model_output=guided,
        timestep=timesteps[:, 1],
        prev_sample=latents[:, 2],
        noise_level=model_config.algo.noise_level,
        sde_type=model_config.algo.sde_type,
        include_logprob_normalizer=False,
    )
    torch.testing.assert_close(mean, expected_mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(log_prob, expected_log_prob, rtol=1e-4, atol=1e-5)
