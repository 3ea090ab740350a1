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
import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorData, NonTensorStack
from torch import nn
from torch.utils.checkpoint import checkpoint
from vllm_omni.diffusion.data import DiffusionOutput
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline

from verl_omni.pipelines.bagel_flow_grpo import BagelDiffusion, BagelPipelineWithLogProb, common
from verl_omni.pipelines.bagel_flow_grpo import bagel_model as model_file
from verl_omni.pipelines.bagel_flow_grpo.bagel_model import BagelForTraining, BagelTrainingConfig
from verl_omni.pipelines.bagel_flow_grpo.common import CFG_DEFAULTS
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


def test_training_starts_from_a_saved_adapter(tmp_path):
    module = tiny_module()
    module.add_adapter(lora_config(init_lora_weights=False))
    inputs = training_inputs(module)[0]
    expected = module(**inputs)[0]
    module.save_lora_adapter(str(tmp_path))
    # As VeRL-Omni's export writes them: the last part of each name, which other layers have, too.
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    config["target_modules"] = sorted({target.rpartition(".")[2] for target in LORA_TARGETS})
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "inference_mode": True}))

    fresh = tiny_module()
    fresh.load_lora_adapter(str(tmp_path))
    assert lora_layers(fresh).keys() == lora_layers(module).keys()
    assert all(parameter.requires_grad for name, parameter in fresh.named_parameters() if ".lora_" in name)
    torch.testing.assert_close(fresh(**inputs)[0], expected)


def test_an_adapter_that_does_not_fit_is_refused(tmp_path):
    module = tiny_module()
    module.add_adapter(lora_config())
    module.save_lora_adapter(str(tmp_path))
    file = tmp_path / "adapter_model.safetensors"
    matrices = load_file(file)
    save_file(dict(list(matrices.items())[1:]), file)
    with pytest.raises(ValueError, match="does not fit this model: 1 matrices"):
        tiny_module().load_lora_adapter(str(tmp_path))
    file.unlink()
    with pytest.raises(FileNotFoundError, match="adapter_model"):
        tiny_module().load_lora_adapter(str(tmp_path))


@pytest.mark.parametrize("version, refused", [("0.21.2", True), ("0.21", True), ("0.20.0", False)])
def test_a_peft_that_sends_no_adapter_is_refused_by_name(version, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("peft.__version__", version)
    config = SimpleNamespace(**{**vars(tiny_model_config()), "local_path": str(tmp_path / "absent"), "lora_rank": 8})
    with pytest.raises(RuntimeError if refused else Exception) as raised:
        BagelDiffusion.build_module(config, torch.float32)
    assert (f"peft {version} finds no LoRA" in str(raised.value)) == refused


def lora_layers(module) -> dict[str, nn.Module]:
    """The layers of ``module`` that carry LoRA, by name."""
    return {name: child for name, child in module.named_modules() if hasattr(child, "lora_A")}


class Sharded(nn.Module):
    """Forwards to a layer whose weight, seen from outside, is gathered elsewhere and empty here."""

    def __init__(self, inner: nn.Linear):
        super().__init__()
        self.inner = inner

    @property
    def weight(self) -> torch.Tensor:
        return self.inner.weight.new_empty(0)

    @property
    def bias(self) -> None:
        return None

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("base", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adapter", [torch.float32, torch.bfloat16])
def test_lora_in_a_sharding_wrapper_computes_the_same(base, adapter):
    module = tiny_module().to(base)
    module.add_adapter(lora_config(init_lora_weights=False))
    folded = tiny_module()
    for name, layer in lora_layers(module).items():
        for matrix in (layer.lora_A, layer.lora_B):
            matrix.to(adapter)
        with torch.no_grad():
            update = layer.lora_B["default"].weight.float() @ layer.lora_A["default"].weight.float()
            folded.get_submodule(name).weight += 4 / 2 * update
    inputs = training_inputs(module)[0]
    with torch.no_grad():
        unwrapped, expected = module(**inputs)[0], folded(**inputs)[0]
        for layer in lora_layers(module).values():
            for matrix in (layer.lora_A, layer.lora_B):
                matrix["default"] = Sharded(matrix["default"])
        wrapped = module(**inputs)[0]
    assert wrapped.dtype == unwrapped.dtype == base
    rounding = torch.finfo(torch.bfloat16 if torch.bfloat16 in (base, adapter) else base).eps
    scale = expected.abs().max().item()
    torch.testing.assert_close(wrapped, unwrapped, rtol=0, atol=4 * rounding * scale)
    torch.testing.assert_close(wrapped.float(), expected, rtol=0, atol=16 * rounding * scale)


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
    state = dict(model_file.checkpoint_tensors(module.state_dict().items()))
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


def stack_of(prompts) -> TensorDict:
    """A batch with one non-tensor entry per sample."""
    stack = NonTensorStack(*(NonTensorData(ids) for ids in prompts))
    return TensorDict({"prompt_token_ids": stack}, batch_size=[len(prompts)])


def array_of_arrays(prompts) -> np.ndarray:
    """A 1-D object array with one array per sample."""
    column = np.empty(len(prompts), dtype=object)
    column[:] = [np.array(ids) for ids in prompts]
    return column


CONTAINERS = {
    "list": list,
    "stack": stack_of,
    "stack of arrays": lambda prompts: stack_of([np.array(ids) for ids in prompts]),
    "array of arrays": array_of_arrays,
    "jagged": lambda prompts: torch.nested.as_nested_tensor(
        [torch.tensor(ids) for ids in prompts], layout=torch.jagged
    ),
    "object rows": lambda prompts: np.array(prompts, dtype=object),
    "rows": torch.tensor,
    "row": lambda prompts: torch.tensor(prompts[0]),
}


@pytest.mark.parametrize(
    "container, prompts",
    [
        *((name, PROMPTS) for name in CONTAINERS if "row" not in name),
        *((name, [[4, 5, 6], [7, 8, 9]]) for name in CONTAINERS if name != "row"),
        *((name, [[4, 5, 6]]) for name in CONTAINERS),
    ],
)
def test_prompt_ids_come_in_every_form_of_the_engine(container, prompts):
    column = CONTAINERS[container](prompts)
    batch = column if isinstance(column, TensorDict) else {"prompt_token_ids": column}
    ids, mask = BagelDiffusion._prompt_token_ids_to_batch(batch, torch.device("cpu"))
    width = max(map(len, prompts))
    assert ids.shape == (len(prompts), width) and ids.dtype == torch.long
    for row, prompt in zip(ids.tolist(), prompts, strict=True):
        assert row[: len(prompt)] == prompt
    if len(set(map(len, prompts))) == 1:
        assert mask is None or mask.all()
    else:
        assert mask.tolist() == [[i < len(prompt) for i in range(width)] for prompt in prompts]


def test_a_batch_without_the_prompt_column_is_refused_by_name():
    module = tiny_module()
    latents = trajectory(module.config, 0, 3)[None]
    arguments = (latents, torch.tensor([[1.0, 0.5]]), None, None, None, None, {"prompts": torch.zeros(1, 3)}, 0)
    with pytest.raises(KeyError, match="prompt_token_ids"):
        BagelDiffusion.prepare_model_inputs(module, tiny_model_config(), *arguments)


class CharacterTokenizer:
    """A tokenizer with one id for each character and one for each special token."""

    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]

    def convert_tokens_to_ids(self, token):
        return 1000 + self.special.index(token) if token in self.special else None

    def convert_ids_to_tokens(self, token_id):
        return self.special[token_id - 1000] if token_id >= 1000 else chr(token_id)

    def encode(self, text, add_special_tokens=True):
        pieces = re.findall("|".join([*map(re.escape, self.special), "."]), text, re.DOTALL)
        return [self.convert_tokens_to_ids(piece) or ord(piece) for piece in pieces]

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


def native_ids(text: str) -> list[int]:
    """Ids of ``text`` as the upstream pipeline makes them."""
    tokenizer = CharacterTokenizer()
    return [
        tokenizer.convert_tokens_to_ids("<|im_start|>"),
        *tokenizer.encode(text),
        tokenizer.convert_tokens_to_ids("<|im_end|>"),
    ]


@pytest.mark.parametrize("form", [list, torch.tensor, lambda ids: [ids], lambda ids: torch.tensor([ids])])
def test_ids_of_the_pipeline_are_decoded_to_the_bare_text(pipeline, form):
    pipeline.tokenizer = CharacterTokenizer()
    request = request_for(form(native_ids("a red sign")))
    pipeline._ensure_bagel_prompt_text(request)
    assert request.prompts[0]["prompt"] == "a red sign"
    assert request.prompts[0]["negative_prompt"] == ""


def test_ids_that_the_pipeline_would_not_make_are_refused(pipeline):
    pipeline.tokenizer = CharacterTokenizer()
    with pytest.raises(ValueError, match="a red sign"):
        pipeline._ensure_bagel_prompt_text(request_for(pipeline.tokenizer.encode("a red sign")))


def chat_ids(*turns: tuple[str, str]) -> list[int]:
    """Ids of a conversation, up to where the assistant answers."""
    template = "<|im_start|>ROLE\n"
    text = "".join(template.replace("ROLE", role) + content + "<|im_end|>\n" for role, content in turns)
    return CharacterTokenizer().encode(text + template.replace("ROLE", "assistant"))


def test_a_chat_gives_the_text_of_its_last_user_turn(pipeline):
    pipeline.tokenizer = CharacterTokenizer()
    turns = ("system", "You are kind."), ("user", "a dog"), ("assistant", "Which?"), ("user", " a red sign ")
    request = request_for(chat_ids(*turns))
    request.prompts[0]["negative_prompt_ids"] = chat_ids(turns[0], ("user", " "))
    pipeline._ensure_bagel_prompt_text(request)
    assert request.prompts[0]["prompt"] == "a red sign"
    assert request.prompts[0]["negative_prompt"] == ""

    request.prompts[0]["negative_prompt_ids"] = chat_ids(turns[0], ("user", "ugly"))
    with pytest.raises(ValueError, match="ugly"):
        pipeline._ensure_bagel_prompt_text(request)


def test_a_prompt_that_training_would_not_see_is_refused(pipeline):
    request = request_for(text="a sign", **{"negative_prompt": "ugly"})
    with pytest.raises(ValueError, match="ugly"):
        pipeline(request)
    for name, value, reason in (
        ("negative_prompt", "ugly", "ugly"),
        ("multi_modal_data", {"image": torch.zeros(3, 2, 2)}, "multi_modal_data"),
        ("extra_args", {"multi_modal_data": {"image": torch.zeros(3, 2, 2)}}, "multi_modal_data"),
    ):
        request = request_for(text="a sign")
        request.prompts[0][name] = value
        with pytest.raises(ValueError, match=reason):
            pipeline(request)


def test_a_blank_negative_prompt_is_emptied(pipeline):
    request = request_for(text="a sign")
    request.prompts[0]["negative_prompt"] = " \n"
    pipeline(request)
    assert request.prompts[0]["negative_prompt"] == ""
    assert request.prompts[0]["prompt"] == "a sign"


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


def upstream_loop(self, request, *args, warp=lambda sigmas: sigmas, **kwargs):
    """Denoise as the upstream pipeline does: its number of steps, its call of the scheduler, its rank of the latents.

    ``warp`` changes the noise levels, to stand for another release.
    """
    points = request.sampling_params.num_inference_steps
    sigmas = torch.linspace(1, 0, points)
    sigmas = 3.0 * sigmas / (1 + 2.0 * sigmas)
    sigmas = warp(sigmas)
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

    monkeypatch.setattr(BagelPipeline, "__init__", without_weights)
    monkeypatch.setattr(BagelPipeline, "forward", upstream_loop)
    return BagelPipelineWithLogProb(od_config=None)


def request_for(prompt_token_ids=(1, 2, 3), steps=STEPS, seed=3, text=None, generator=None, **extra_args):
    """The part of a rollout request that pipeline and adapter read."""
    prompt = {"prompt_token_ids": prompt_token_ids}
    if text is not None:
        prompt["prompt"] = text
    sampling_params = SimpleNamespace(
        height=32,
        width=48,
        num_inference_steps=steps,
        seed=seed,
        generator=generator,
        return_trajectory_latents=False,
        extra_args={"logprobs": True, "noise_level": 0.7, "sde_type": "sde", "global_steps": 1, **extra_args},
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


def test_noise_does_not_come_from_the_generator_of_the_request(pipeline):
    """It seeds the initial latents: drawn from again, it would repeat them as the first noise."""
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    given, without = (roll_out(pipeline, generator=g, sde_window_size=2)[0] for g in (generator, None))
    assert torch.equal(generator.get_state(), state)
    torch.testing.assert_close(given, without, rtol=0, atol=0)


def test_validation_has_no_noise_and_returns_no_trajectory(pipeline):
    window = {"sde_window_size": 50, "sde_window_range": [40, 90], "global_steps": None}
    assert roll_out(pipeline, noise_level=0.0, logprobs=False, **window)[:3] == (None, None, None)
    with pytest.raises(ValueError, match="window"):
        roll_out(pipeline, noise_level=0.7, **window)


def test_training_gets_its_trajectory_when_no_log_probs_are_asked_for(pipeline):
    latents, timesteps, log_probs, _ = roll_out(pipeline, logprobs=False, sde_window_size=2)
    assert (latents.shape[1], timesteps.shape[1], log_probs) == (3, 2, None)


def loop_without_a_step(self, request, *args, **kwargs):
    """What some releases do when one step is asked for."""
    return DiffusionOutput(output=torch.zeros(3, 2, 2))


def test_warm_up_without_a_step_returns_no_trajectory(pipeline, monkeypatch):
    roll_out(pipeline, steps=1)
    monkeypatch.setattr(BagelPipeline, "forward", loop_without_a_step)
    assert roll_out(pipeline, steps=1)[:3] == (None, None, None)
    with pytest.raises(RuntimeError, match="0 steps"):
        roll_out(pipeline)


@pytest.mark.parametrize(
    "more, warp",
    [
        pytest.param(1, lambda sigmas: sigmas, id="one step more"),
        pytest.param(-1, lambda sigmas: sigmas, id="one step fewer"),
        pytest.param(0, lambda sigmas: 2 * sigmas / (1 + sigmas), id="another shift"),
    ],
)
def test_an_upstream_schedule_that_differs_is_refused(pipeline, monkeypatch, more, warp):
    def other_loop(self, request, *args, **kwargs):
        request.sampling_params.num_inference_steps += more
        return upstream_loop(self, request, *args, warp=warp, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(BagelPipeline, "forward", other_loop)
        with pytest.raises(RuntimeError, match="step"):
            roll_out(pipeline, sde_window_size=2)
    latents, _, log_probs, _ = roll_out(pipeline, sde_window_size=2)
    assert (latents.shape[1], log_probs.shape[1]) == (3, 2)


def test_window_is_that_of_the_training_step(monkeypatch):
    begins: dict[int, int] = {}
    for rank in ("0", "5"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        for step in range(1, 301):
            begin, end = common.pick_sde_window(2, [1, 7], step)
            assert 1 <= begin and end == begin + 2 <= 7
            assert common.pick_sde_window(2, (1, 7), step) == (begin, end)
            assert begins.setdefault(step, begin) == begin
    drawn = list(begins.values())
    assert all(drawn.count(begin) > 30 for begin in range(1, 6))


def test_window_without_a_choice_needs_no_step():
    assert common.pick_sde_window(None, (0, 7), None) is None
    assert common.pick_sde_window(2, None, None) == (0, 2)
    assert common.pick_sde_window(3, (4, 5), None) == (4, 7)
    with pytest.raises(ValueError, match="global_steps"):
        common.pick_sde_window(2, (0, 7), None)


# Weights from the actor


@pytest.fixture
def engine(pipeline, monkeypatch) -> dict[str, torch.Tensor]:
    """What the upstream pipeline was given to load, by the names it was given under."""
    received = {}

    def load_weights(self, weights):
        loaded = dict(weights)
        received.update(loaded)
        return set(loaded)

    monkeypatch.setattr(BagelPipeline, "load_weights", load_weights)
    return received


@pytest.mark.parametrize("lora", [False, True])
def test_weights_of_the_actor_reach_the_engine_under_checkpoint_names(pipeline, engine, lora):
    module = tiny_module()
    expected = dict(model_file.checkpoint_tensors(module.state_dict().items()))
    if lora:
        module.add_adapter(lora_config())
    sent = {f"transformer.{name}": tensor for name, tensor in module.state_dict().items() if ".lora_" not in name}
    assert any(".base_layer." in name for name in sent) == lora
    assert pipeline.load_weights(iter(sent.items())) == set(expected)
    assert engine.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(engine[name], tensor), name


def test_names_of_the_checkpoint_are_left_alone(pipeline, engine):
    names = [name for name, _ in model_file.checkpoint_tensors(tiny_module().state_dict().items())]
    names += [source + "weight" for source, _ in model_file.IGNORED_KEYS] + ["nobody.knows.me"]
    sent = {name: torch.tensor(i) for i, name in enumerate(names)}
    assert pipeline.load_weights(iter(sent.items())) == set(sent)
    assert engine == sent


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rslora, scaling", [(False, 6 / 2), (True, 6 / 2**0.5)])
def test_each_push_is_folded_into_the_checkpoint_anew(folding, engine, tmp_path, dtype, rslora, scaling):
    module = tiny_module().to(dtype)
    write_checkpoint(tmp_path, module)
    base = module.state_dict()
    folding.load_weights((f"transformer.{name}", tensor) for name, tensor in base.items())
    for seed in (1, 2, 2):
        update = lora_update(seed)
        engine.clear()
        folding.map_lora_update_to_engine(update, {**PLAIN_LORA, "use_rslora": rslora})
        assert len(update) == 2 * len(LORA_TARGETS) * module.config.num_hidden_layers
        modules = [name.removesuffix(".lora_A.weight") for name in update if name.endswith(".lora_A.weight")]
        merged = {}
        for name in modules:
            down, up = (update[f"{name}.lora_{side}.weight"] for side in "AB")
            target = name.removeprefix("transformer.") + ".weight"
            merged[target] = base[target].float() + scaling * up @ down
        expected = dict(model_file.checkpoint_tensors(merged.items()))
        assert engine.keys() == expected.keys()
        for source, folded in engine.items():
            assert folded.dtype == torch.float32
            torch.testing.assert_close(folded, expected[source], rtol=1e-5, atol=1e-6, msg=source)


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_is_left_of_lora_is_one_adapter_of_zeros(folding, wrapped):
    linear = next(child for child in folding.modules() if isinstance(child, LinearBase))
    if wrapped:  # as after the first push
        parent = next(child for child in folding.modules() if getattr(child, "unused", None) is linear)
        parent.unused = nn.Module()
        parent.unused.base_layer = linear
    tensors, peft_config = folding.map_lora_update_to_engine(lora_update(1), dict(PLAIN_LORA))
    (target,) = peft_config["target_modules"]
    assert isinstance(peft_config["target_modules"], list)
    assert {**peft_config, "target_modules": LORA_TARGETS} == PLAIN_LORA
    assert [name for name, _ in folding.named_modules() if name.endswith(f".{target}")] == ["model.connector.unused"]
    assert target == "connector.unused"
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        f"{target}.lora_A.weight": (2, 5),
        f"{target}.lora_B.weight": (7, 2),
    }
    assert not any(tensor.any() for tensor in tensors.values())


def test_an_engine_that_lora_cannot_reach_is_refused(folding, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(BagelPipeline, "load_weights", lambda self, weights: set(list(weights)[:0]))
        with pytest.raises(ValueError, match="took none"):
            folding.map_lora_update_to_engine(lora_update(1), PLAIN_LORA)
    parent = next(child for child in folding.modules() if isinstance(getattr(child, "unused", None), LinearBase))
    parent.unused = nn.Linear(5, 7)
    with pytest.raises(ValueError, match="placeholder"):
        folding.map_lora_update_to_engine(lora_update(1), PLAIN_LORA)


@pytest.mark.parametrize(
    "changes", [{"use_dora": True}, {"rank_pattern": {LORA_TARGETS[0]: 4}}, {"alpha_pattern": {LORA_TARGETS[0]: 4}}]
)
def test_lora_that_is_not_plain_is_refused(folding, engine, changes):
    with pytest.raises(ValueError, match="plain LoRA"):
        folding.map_lora_update_to_engine(lora_update(1), {**PLAIN_LORA, **changes})
    assert not engine


@pytest.mark.parametrize("name", ["layers.0.weight", "layers.0.bias", "layers.0.lora_B.weight", "layers.0.lora_A.bias"])
def test_tensors_that_are_no_lora_matrices_are_refused_by_name(folding, engine, name):
    tensors = {**lora_update(1), f"transformer.{name}": torch.zeros(2, 2)}
    with pytest.raises(ValueError, match=f"transformer.{name}"):
        folding.map_lora_update_to_engine(tensors, PLAIN_LORA)
    assert not engine


def test_lora_on_a_module_that_the_checkpoint_lacks_is_refused_by_name(folding):
    update = {f"transformer.nobody.lora_{side}.weight": torch.zeros(2, 2) for side in "AB"}
    with pytest.raises(ValueError, match="transformer.nobody"):
        folding.map_lora_update_to_engine(update, PLAIN_LORA)


def test_lora_on_a_base_that_the_actor_changed_is_refused_by_name(folding):
    name = next(iter(lora_update(1))).removeprefix("transformer.").rpartition(".lora_")[0]
    base = tiny_module().state_dict()
    changed = {**base, f"{name}.weight": base[f"{name}.weight"] + 1e-3}

    def push(state):
        wrapped = ((key.replace(f"{name}.", f"{name}.base_layer."), tensor) for key, tensor in state.items())
        folding.load_weights((f"transformer.{key}", tensor) for key, tensor in wrapped)

    push(changed)
    with pytest.raises(ValueError, match=f"{name}.weight"):
        folding.map_lora_update_to_engine(lora_update(1), PLAIN_LORA)
    push(base)
    folding.map_lora_update_to_engine(lora_update(1), PLAIN_LORA)


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
    if CFG_DEFAULTS["cfg_img_scale"] > 1.0:
        guided = with_text + CFG_DEFAULTS["cfg_img_scale"] * (guided - with_text)
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
