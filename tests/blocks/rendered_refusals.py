# ruff: noqa: F401, F811 - pytest finds its fixtures by these names
# ruff: noqa: PT006, RUF012
"""What the golden package refuses, and the corners of its rollout.

``tests/blocks/test_rendered_refusals.py`` runs this file beside the rendered CPU test, whose helpers it uses.
"""

import dataclasses
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_bagel_flow_grpo_on_cpu import (
    LORA_TARGETS,
    PLAIN_LORA,
    STEPS,
    BagelDiffusion,
    BagelForTraining,
    BagelPipeline,
    DiffusionOutput,
    LinearBase,
    encoded,
    engine,
    folding,
    lora_config,
    lora_update,
    model_file,
    pipeline,
    tiny_config,
    tiny_model_config,
    tiny_module,
    trajectory,
    velocity_of,
    write_checkpoint,
)
from torch import nn
from verl_omni.pipelines.bagel_flow_grpo import common
from verl_omni.pipelines.bagel_flow_grpo.vllm_omni_rollout_adapter import PROMPTS
from verl_omni.pipelines.flow_grpo_runtime.levels import pick_sde_window
from verl_omni.pipelines.flow_grpo_runtime.prompt_form import ensure_text


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


def test_key_map_is_invertible_and_has_no_dead_rule():
    names = list(tiny_module().state_dict())
    weights = model_file.WEIGHTS
    sources = [source for name in names for source in weights.checkpoint_keys(name)]
    assert len(set(sources)) == len(names)
    assert [name for source in sources for name in weights.training_keys(source)] == names
    used = {next(rule for rule in model_file.KEY_MAP if source.startswith(rule[0])) for source in sources}
    assert used == set(model_file.KEY_MAP)


def test_position_table_decides_the_grid(tmp_path):
    module = tiny_module()
    write_checkpoint(tmp_path, module)
    dataclasses.replace(tiny_config(), max_latent_size=5).save_pretrained(str(tmp_path))
    loaded = BagelForTraining.from_pretrained(str(tmp_path), torch_dtype=torch.float32)
    assert loaded.config.max_latent_size == module.config.max_latent_size


def test_a_batch_without_the_prompt_column_is_refused_by_name():
    module = tiny_module()
    latents = trajectory(module.config, 0, 3)[None]
    arguments = (latents, torch.tensor([[1.0, 0.5]]), None, None, None, None, {"prompts": torch.zeros(1, 3)}, 0)
    with pytest.raises(KeyError, match="encoded_prompt_ids"):
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
    """The names in the data script, which is not a module of a package."""
    root = Path(__file__).resolve().parents[2]
    return runpy.run_path(str(root / "examples/flowgrpo_trainer/data_process/bagel_ocr.py"))


def test_preprocessor_names_the_line_it_cannot_use(preprocessor, tmp_path):
    (tmp_path / "train.txt").write_text('a sign that says "OPEN"\n\nno quotation\n')
    arguments = ("train", CharacterTokenizer(), 99, "error", "ocr")
    with pytest.raises(ValueError, match=r"train\.txt:3: "):
        preprocessor["read_split"](str(tmp_path / "train.txt"), *arguments)
    (tmp_path / "train.txt").write_text('a sign that says "OPEN"\n')
    (row,) = preprocessor["read_split"](str(tmp_path / "train.txt"), *arguments)
    assert row["reward_model"]["ground_truth"] == "OPEN"
    assert row["prompt"] == [{"role": "user", "content": 'a sign that says "OPEN"'}]


def request_for(prompt_token_ids=(1, 2, 3), steps=STEPS, seed=3, text=None, generator=None, **extra_args):
    """The part of a rollout request that pipeline and adapter read."""
    prompt = {"prompt_token_ids": prompt_token_ids}
    if text is not None:
        prompt["prompt"] = text
    sampling_params = SimpleNamespace(
        height=32,
        width=48,
        num_inference_steps=steps,
        max_sequence_length=None,
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


def upstream_loop(self, request, *args, warp=lambda sigmas: sigmas, **kwargs):
    """Denoise as the upstream pipeline does: its number of steps, its call of the scheduler, its rank of the latents.

    ``warp`` changes the noise levels, to stand for another release.
    """
    self.embed_tokens(torch.tensor(encoded(request.prompts[0]["prompt"])))
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


def test_ids_that_the_pipeline_would_not_make_are_refused(pipeline):
    pipeline.tokenizer = CharacterTokenizer()
    with pytest.raises(ValueError, match="a red sign"):
        ensure_text(
            pipeline.rollout_plan.prompts,
            pipeline,
            request_for(pipeline.tokenizer.encode("a red sign")),
            "BagelPipeline",
        )


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
    ensure_text(PROMPTS, pipeline, request, "BagelPipeline")
    assert request.prompts[0]["prompt"] == "a red sign"
    assert request.prompts[0]["negative_prompt"] == ""

    request.prompts[0]["negative_prompt_ids"] = chat_ids(turns[0], ("user", "ugly"))
    with pytest.raises(ValueError, match="ugly"):
        ensure_text(PROMPTS, pipeline, request, "BagelPipeline")


def test_a_prompt_that_training_would_not_see_is_refused(pipeline):
    request = request_for(text="a sign", negative_prompt="ugly")
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


def test_noise_does_not_come_from_the_generator_of_the_request(pipeline):
    """It seeds the initial latents: drawn from again, it would repeat them as the first noise."""
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    given, without = (roll_out(pipeline, generator=g, sde_window_size=2)[0] for g in (generator, None))
    assert torch.equal(generator.get_state(), state)
    torch.testing.assert_close(given, without, rtol=0, atol=0)


def test_window_without_a_choice_needs_no_step():
    assert pick_sde_window(None, (0, 7), None) is None
    assert pick_sde_window(2, None, None) == (0, 2)
    assert pick_sde_window(3, (4, 5), None) == (4, 7)
    with pytest.raises(ValueError, match="global_steps"):
        pick_sde_window(2, (0, 7), None)


def test_names_of_the_checkpoint_are_left_alone(pipeline, engine):
    names = [name for name, _ in model_file.WEIGHTS.tensors(tiny_module().state_dict().items())]
    names += [source + "weight" for source, _ in model_file.IGNORED_KEYS] + ["nobody.knows.me"]
    sent = {name: torch.tensor(i) for i, name in enumerate(names)}
    assert pipeline.load_weights(iter(sent.items())) == set(sent)
    assert engine == sent


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
        expected = dict(model_file.WEIGHTS.tensors(merged.items()))
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
