"""A small composed package from checkpoint to log-probs: one request, a batch, LoRA, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase

from flow_grpo_runtime import results
from flow_grpo_runtime.composed_layers import PositionTable, TimestepEmbedder, sinusoidal_features
from flow_grpo_runtime.composed_module import (
    ComposedModule,
    SavedSizes,
    read_json,
    required_sizes,
    section_or_file,
    token_id,
)
from flow_grpo_runtime.composed_rollout import (
    ComposedPlan,
    FoldingRollout,
    in_dtype_of_module,
    require_chat_template,
)
from flow_grpo_runtime.composed_scheduler import ComposedScheduler
from flow_grpo_runtime.composed_training import ComposedTraining, encoded_prompts, latent_grid, negative_ids
from flow_grpo_runtime.guidance import PackedGuidance, settings_of
from flow_grpo_runtime.levels import schedule, setup_of
from flow_grpo_runtime.prompt_form import PromptForm
from flow_grpo_runtime.released import ReleasedWeights, prefix_rules
from flow_grpo_runtime.request_batch import Replaced

HIDDEN = 4


@schedule
def levels(num_inference_steps: int) -> list[float]:
    return [1 - step / num_inference_steps for step in range(num_inference_steps)]


COMMON: Any = SimpleNamespace(
    GUIDANCE=PackedGuidance(text_scale="scale"),
    CFG_DEFAULTS={"scale": 3.0},
    MAX_PROMPT_LENGTH=6,
    setup_sigmas=setup_of(levels),
    resolve_guidance=settings_of({"scale": 3.0}),
)
WEIGHTS = ReleasedWeights(
    "Net",
    prefix_rules((("net.", ""),), (("vision.", "not trained"),)),
    ("model.safetensors",),
    "model.safetensors",
    computed=("table.pos_embed",),
)


@dataclass
class Sizes(SavedSizes):
    hidden_size: int = HIDDEN
    num_attention_heads: int = 2
    latent_patch_size: int = 2
    latent_channel: int = 1
    vae_downsample: int = 4
    max_latent_size: int = 4
    vocab_size: int = 0
    negative_token_ids: tuple[int, ...] = (0,)

    @classmethod
    def from_model_path(cls, model_path: str) -> Sizes:
        root = json.loads((Path(model_path) / "config.json").read_text())
        return cls.saved(root) or cls(**required_sizes(root, "config.json", ["hidden_size"]))


class Net(ComposedModule, NonDiffusersModelBase):
    """The training module."""

    config_class = Sizes
    weights = WEIGHTS
    position_table = "table"
    _no_split_modules: ClassVar[list[str]] = []
    _supports_gradient_checkpointing = True

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([nn.Linear(config.hidden_size, config.hidden_size, bias=False) for _ in range(2)])
        self.table = PositionTable(config.max_latent_size, config.hidden_size)

    def forward(
        self, hidden_states: Tensor, timestep: Tensor, text_token_ids: Tensor, text_attention_mask: Any = None
    ) -> tuple[Tensor]:
        text = self.embed_tokens(text_token_ids)
        kept = torch.ones_like(text[..., :1]) if text_attention_mask is None else text_attention_mask[..., None]
        text = (text * kept).sum(dim=1, keepdim=True) / kept.sum(dim=1, keepdim=True)
        for layer, _ in self.layers_to_recompute():
            hidden_states = layer(hidden_states)
        return (hidden_states + text * timestep.view(-1, 1, 1),)


class Training(ComposedTraining):
    common = COMMON
    module_class = Net
    trainable = ("layers.",)

    @classmethod
    def prepare_model_inputs(
        cls, module: Any, model_config: Any, latents: Tensor, timesteps: Tensor, micro_batch: Any, step: int, **_: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        ids, mask = encoded_prompts(micro_batch, latents)
        shared = {"hidden_states": latents[:, step], "timestep": timesteps[:, step]}
        negative = {**shared, "text_token_ids": negative_ids(module.config, latents)}
        return {**shared, "text_token_ids": ids, "text_attention_mask": mask}, negative


class LinearBase(nn.Linear):
    def __init__(self) -> None:
        super().__init__(HIDDEN, HIDDEN, bias=False)
        self.input_size = self.output_size = HIDDEN


class Engine(nn.Module):
    """The engine's own denoiser."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(27, HIDDEN)
        self.layers = nn.ModuleList([LinearBase() for _ in range(2)])
        self.calls = 0

    def encode(self, ids: Tensor) -> Tensor:
        return self.embed_tokens(ids).mean(dim=0)

    def predict(self, x: Tensor, text: Tensor, level: float) -> Tensor:
        self.calls += 1
        return self.layers[1](self.layers[0](x)) + text * level  # type: ignore[no-any-return]


class Characters:
    """A tokenizer whose ids are letters."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(letter) - 96 for letter in text]

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(chr(96 + number) for number in ids)


class Pipeline(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.vision = Engine(), nn.ModuleDict({"proj": LinearBase()})
        self.tokenizer = Characters()

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        filled = set()
        for name, tensor in weights:
            with torch.no_grad():
                self.get_parameter(name).copy_(tensor)
            filled.add(name)
        return filled

    def forward(self, req: Any) -> Any:
        ids = torch.tensor(self.tokenizer.encode(req.prompts[0]["prompt"]))
        text, empty = self.net.encode(ids), self.net.encode(torch.tensor([0]))
        scale = req.sampling_params.extra_args["scale"]
        x = torch.ones(1, 4, HIDDEN)
        for level in self.scheduler.timesteps.tolist():
            made = self.net.predict(x, empty, level)
            made = made + scale * (self.net.predict(x, text, level) - made)
            x = self.scheduler.step(made, level, x).prev_sample
        return SimpleNamespace(output={"image": x})


class Scheduler(ComposedScheduler):
    def step(self, velocity: Tensor, level: float, sample: Tensor) -> Any:
        return self.taken(velocity, level, sample)


PLAN = ComposedPlan(
    common=COMMON,
    pipeline="Pipeline",
    prompts=PromptForm(),
    weights=WEIGHTS,
    result=results.enveloped,
    unused=("vision.",),
    token_pixels=8,
    pinned={"sampler": "euler"},
    training=f"{__name__}.Training",
    replaced=(Replaced("net.predict", like="x"), Replaced("net.encode", ids="ids")),
)


class Rollout(FoldingRollout, Pipeline):
    rollout_plan = PLAN

    def __init__(self, folder: Path, plan: ComposedPlan = PLAN) -> None:
        self.rollout_plan = plan  # type: ignore[misc]
        super().__init__()
        self.od_config = SimpleNamespace(model=str(folder), dtype=torch.float32, additional_config=None)
        self.scheduler = self.sde_scheduler = Scheduler(COMMON, "Pipeline")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    tensors = {f"net.layers.{n}.weight": torch.randn(HIDDEN, HIDDEN) for n in (0, 1)}
    tensors |= {"net.embed_tokens.weight": torch.randn(27, HIDDEN), "vision.proj.weight": torch.randn(HIDDEN, HIDDEN)}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"hidden_size": 4, "name": "toy"}')
    return tmp_path


def rollout(folder: Path, plan: ComposedPlan = PLAN) -> Rollout:
    made = Rollout(folder, plan)
    made.load_weights(load_file(folder / "model.safetensors").items())
    return made


@dataclass
class Batch:
    requests: list[Any]

    @property
    def prompts(self) -> list[Any]:
        return [self.requests[0].prompt]

    @property
    def sampling_params(self) -> Any:
        return self.requests[0].sampling_params


def one(text: str = "cat", seed: int = 0, **given: Any) -> Any:
    lora = given.pop("lora_request", None)
    noise = {"noise_level": 0.7, "generator": torch.Generator().manual_seed(seed), **given}
    params = SimpleNamespace(
        num_inference_steps=3,
        extra_args=noise,
        seed=None,
        height=16,
        width=16,
        max_sequence_length=None,
        lora_request=lora,
    )
    return SimpleNamespace(prompt={"prompt_ids": Characters().encode(text)}, sampling_params=params)


def run(adapter: Rollout, *requests: Any) -> Any:
    with torch.no_grad():
        return adapter(Batch(list(requests)))


CONFIG = SimpleNamespace(
    algo=SimpleNamespace(noise_level=0.7, sde_type="sde"),
    pipeline=SimpleNamespace(num_inference_steps=3, scale=3.0, height=16, width=16),
)


def carried(made: Any) -> tuple[dict[str, Tensor], Any]:
    return made.output["metadata"]["rl"], made


def trained(module: Any, made: Any, step: int) -> Tensor:
    columns, output = carried(made)
    latents, timesteps = output.trajectory_latents, output.trajectory_timesteps
    inputs = {"all_latents": latents, "all_timesteps": timesteps}
    given, negative = Training.prepare_model_inputs(module, CONFIG, latents, timesteps, columns, step)
    scheduler = Training.build_scheduler(CONFIG)
    return Training.forward_and_sample_previous_step(module, scheduler, CONFIG, given, negative, inputs, step)[0]


def test_a_pipeline_is_built_without_drawing_what_its_checkpoint_brings(folder: Path) -> None:
    torch.manual_seed(1)
    following = torch.rand(3)
    torch.manual_seed(1)
    made = rollout(folder)
    assert torch.equal(torch.rand(3), following)
    for name, tensor in load_file(folder / "model.safetensors").items():
        assert torch.equal(made.get_parameter(name), tensor)
    torch.manual_seed(1)
    Pipeline()  # without the adapter numbers are drawn
    assert not torch.equal(torch.rand(3), following)


def test_training_makes_the_log_probs_of_a_request_again(folder: Path) -> None:
    module = Training.build_module(SimpleNamespace(local_path=str(folder)), torch.float32)
    Training.configure_trainable_params(module, CONFIG)
    assert {name for name, p in module.named_parameters() if p.requires_grad} == {
        "layers.0.weight",
        "layers.1.weight",
    }
    made = run(rollout(folder), one())
    for step in range(3):
        log_prob = trained(module, made, step)
        assert torch.allclose(log_prob, made.trajectory_log_probs[:, step], atol=1e-6)
        log_prob.sum().backward()
    assert module.layers[0].weight.grad.abs().sum() > 0


def test_a_batch_is_made_as_its_requests_alone_with_fewer_calls(folder: Path) -> None:
    alone = [run(rollout(folder), one(text, seed)) for seed, text in enumerate(("cat", "dog", "a"))]
    adapter = rollout(folder)
    together = run(adapter, *(one(text, seed) for seed, text in enumerate(("cat", "dog", "a"))))
    assert adapter._joint is not None
    assert adapter._joint.apart < 1e-5
    assert adapter.net.calls < 3 * 6
    for first, second in zip(alone, together, strict=True):
        assert torch.allclose(first.trajectory_latents, second.trajectory_latents, atol=1e-5)
        assert torch.allclose(first.trajectory_log_probs, second.trajectory_log_probs, atol=1e-4)
        for name, column in carried(first)[0].items():
            assert torch.equal(column, carried(second)[0][name])
    assert "predict" not in vars(adapter.net)


def test_a_parameter_is_not_drawn_before_it_is_loaded(folder: Path) -> None:
    class Reset(Pipeline):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Parameter(torch.empty(HIDDEN))
            nn.init.trunc_normal_(nn.init.zeros_(self.gate))
            nn.init.normal_(drawn := torch.zeros(HIDDEN))
            self.register_buffer("noise", drawn)

    class Resetting(Rollout, Reset):
        pass

    torch.manual_seed(1)
    wanted = torch.zeros(HIDDEN).normal_()
    torch.manual_seed(1)
    made = Resetting(folder)
    assert torch.equal(made.get_buffer("noise"), wanted)  # the first number that was drawn: no file holds a buffer
    assert made.get_parameter("gate").abs().max() < 10  # zeros, moved and scaled by nothing
    assert nn.Linear(HIDDEN, HIDDEN).weight.std() > 0  # as ever, afterwards


def test_an_error_of_a_batch_concerns_its_request_alone(folder: Path) -> None:
    for plan in (PLAN, ComposedPlan(**{**vars(PLAN), "replaced": ()})):
        good, bad = run(rollout(folder, plan), one(), one(sampler="heun"))
        assert good.error is None
        assert "training knows sampler='euler' alone, the request has 'heun'" in bad.error


def test_weights_that_are_in_no_one_piece_are_computed_one_by_one(folder: Path, caplog: Any) -> None:
    adapter = rollout(folder)
    adapter._views.places.clear()
    made = run(adapter, one(), one("dog", 1))
    assert [result.error for result in made] == [None, None]
    assert "requests of a batch are made one by one" in caplog.text
    assert adapter.one_by_one


def test_what_training_does_not_make_is_refused(folder: Path) -> None:
    adapter = rollout(folder)
    wide = one()
    wide.sampling_params.width = 32
    with pytest.raises(ValueError, match="makes images of few sizes alone, and 32x16 is none of them"):
        run(adapter, wide)
    with pytest.raises(ValueError, match="7 tokens of a prompt where max_sequence_length leaves room for 6"):
        run(adapter, one("abcdefg"))
    extended = rollout(folder, ComposedPlan(**{**vars(PLAN), "worker_extension": "package.Extension"}))
    with pytest.raises(RuntimeError, match="LoRA adapter that was not folded .*_cls to package"):
        run(extended, one(lora_request=1))


def test_lora_is_folded_into_the_checkpoints_weights(folder: Path) -> None:
    adapter = rollout(folder)
    base = adapter.net.layers[0].weight.detach().clone()
    adapter.load_weights([("transformer.layers.0.weight", base.clone())])
    sides = {"A": torch.randn(2, HIDDEN), "B": torch.randn(HIDDEN, 2)}
    update = {f"transformer.layers.0.lora_{side}.weight": matrix for side, matrix in sides.items()}
    for _ in range(2):  # nothing adds up
        left, config = adapter.map_lora_update_to_engine(update, {"r": 2, "lora_alpha": 2})
        assert torch.allclose(adapter.net.layers[0].weight, base + sides["B"] @ sides["A"], atol=1e-6)
    assert config["target_modules"] == ["vision.proj"]
    assert not any(tensor.any() for tensor in left.values())
    unknown = {name.replace("layers.0", "layers.9"): matrix for name, matrix in update.items()}
    with pytest.raises(ValueError, match="checkpoint has no weight of that name"):
        adapter.map_lora_update_to_engine(unknown, {"r": 2, "lora_alpha": 2})
    for other in (base + 1, base.flip(0)):
        adapter.load_weights([("transformer.layers.0.weight", other)])
        with pytest.raises(ValueError, match="is not the checkpoint's to fold LoRA into"):
            adapter.map_lora_update_to_engine(update, {"r": 2, "lora_alpha": 2})
    adapter.load_weights([("transformer.layers.0.weight", base)])
    adapter.map_lora_update_to_engine(update, {"r": 2, "lora_alpha": 2})
    second = {name.replace("layers.0", "layers.1"): matrix for name, matrix in update.items()}
    adapter.map_lora_update_to_engine(second, {"r": 2, "lora_alpha": 2})
    assert torch.equal(adapter.net.layers[0].weight, base)  # LoRA no longer is on it


def test_a_module_is_saved_as_it_was_released(folder: Path, tmp_path: Path) -> None:
    module = Net.from_pretrained(str(folder), torch_dtype=torch.float32)
    assert module.table.pos_embed.shape == (16, HIDDEN)
    module.save_pretrained(str(tmp_path / "saved"))
    again = Net.from_pretrained(str(tmp_path / "saved"), torch_dtype=torch.float32)
    assert all(torch.equal(p, again.get_parameter(name)) for name, p in module.named_parameters())
    assert again.config == module.config
    assert again.config.pixels_per_token == 8
    assert again.config.head_dim == 2
    assert again.config.patch_latent_dim == HIDDEN
    assert json.loads((tmp_path / "saved/config.json").read_text())["name"] == "toy"
    assert Net.unplaced_parameters(str(folder), ["table.pos_embed"]) == set()
    assert ("model.safetensors", "net.layers.0.weight") in Net.released_pieces(str(folder))
    with pytest.raises(ValueError, match="saves safetensors only"):
        module.save_pretrained(str(tmp_path), safe_serialization=False)


def test_rules_that_do_not_fit_are_named(folder: Path) -> None:
    with pytest.raises(KeyError, match="'strange' is in no rule of Net"):
        WEIGHTS.rule_of("strange")
    empty = prefix_rules((("net.", "inner."),), ())
    with pytest.raises(KeyError, match="no rule leads to parameter 'outer.x' of Net"):
        ReleasedWeights("Net", empty, (), "").origin_of("outer.x")
    with pytest.raises(ValueError, match="1 missing: net.b; 1 unexpected: net.c; 1 mis-shaped"):
        WEIGHTS.check(
            {"a": torch.zeros(1), "b": torch.zeros(1)}, {"a": torch.zeros(2), "c": torch.zeros(1)}, "a folder"
        )
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors is missing"):
        WEIGHTS.open(str(folder))


def test_sizes_come_from_the_files_that_the_rollout_reads(tmp_path: Path) -> None:
    (tmp_path / "llm.json").write_text('{"hidden_size": 8}')
    assert section_or_file(str(tmp_path), {}, "llm.json") == {"hidden_size": 8}
    assert section_or_file(str(tmp_path), {"llm": {"a": 1}}, "", "llm") == {"a": 1}
    with pytest.raises(FileNotFoundError, match="other.json or section llm of config.json is missing"):
        section_or_file(str(tmp_path), {}, "other.json", "llm")
    with pytest.raises(ValueError, match="llm.json has no 'depth'; the training module cannot guess it"):
        required_sizes({}, "llm.json", ["depth"])
    with pytest.raises(FileNotFoundError, match="the training module reads its sizes from there"):
        read_json(str(tmp_path), "nothing.json")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", '{"added_tokens": [{"content": "<a>", "id": 7}]}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"7": {"content": "<a>"}}}'),
        ("added_tokens.json", '{"<a>": 7}'),
    ],
)
def test_ids_of_added_tokens_come_from_the_tokenizers_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert token_id(str(tmp_path), "<a>", None) == 7
    assert token_id(str(tmp_path), "<b>", 3) == 3
    with pytest.raises(ValueError, match="no tokenizer file in .* gives the id of '<b>'"):
        token_id(str(tmp_path), "<b>", None)


def test_latents_have_their_places(folder: Path) -> None:
    config = Sizes()
    grid = latent_grid(config, CONFIG, torch.zeros(2, 2, 4, HIDDEN))
    assert grid.shape == (2, 4, 2)
    assert grid[0].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    with pytest.raises(ValueError, match="are 2x2 latent tokens; the trajectory has 4 and the position table 1 a side"):
        latent_grid(config, CONFIG, torch.zeros(2, 2, 4, HIDDEN), most=1)
    with pytest.raises(ValueError, match="the configuration has no negative_token_ids"):
        negative_ids(Sizes(negative_token_ids=()), torch.zeros(1))
    module = Net.from_pretrained(str(folder))
    ids = module.with_markers(torch.tensor([[5]]), torch.zeros(1, 1), 8, 9)
    assert ids.tolist() == [[5, 8, 9]]
    assert module.with_markers(None, torch.zeros(1, 1)).shape == (1, 0)
    assert TimestepEmbedder(4, HIDDEN)(sinusoidal_features(torch.ones(2), 4, 100.0)).shape == (2, HIDDEN)


def test_a_scheduler_that_walks_elsewhere_is_refused() -> None:
    scheduler = Scheduler(COMMON, "Pipeline")
    asked: Any = {"window": None, "noise_level": 0.7, "sde_type": "sde", "record_log_probs": True, "generator": None}
    scheduler.start(num_inference_steps=3, **asked)
    assert scheduler.following(SimpleNamespace(timesteps=levels(3))) is scheduler
    with pytest.raises(RuntimeError, match=r"walks \[1.0, 0.5\] … in 2 steps, training"):
        scheduler.following(SimpleNamespace(timesteps=levels(2)))
    x = torch.zeros(1, 4, HIDDEN)
    with pytest.raises(RuntimeError, match="took 0 steps, training takes 3"):
        scheduler.end()
    with pytest.raises(RuntimeError, match="no trajectory was started"):
        scheduler.end()
    with pytest.raises(RuntimeError, match=r"takes a step outside of the rollout adapter's forward\(\)"):
        scheduler.step(x, 1.0, x)
    with pytest.raises(ValueError, match=r"SDE window \[2, 5\) does not lie in the 3 steps"):
        scheduler.start(num_inference_steps=3, **{**asked, "window": (2, 5)})
    scheduler.start(num_inference_steps=2, **asked)
    for level in (1.0, 0.6):
        x = scheduler.step(x, level, x).prev_sample
    with pytest.raises(RuntimeError, match="takes more than the 2 steps of the training schedule"):
        scheduler.step(x, 0.0, x)
    with pytest.raises(RuntimeError, match=r"was at noise level 0.600000 in step 1, training expects 0.500000"):
        scheduler.end()


def test_a_second_branch_without_inputs_is_refused(folder: Path) -> None:
    module = Net.from_pretrained(str(folder), torch_dtype=torch.float32)
    given = {"hidden_states": torch.ones(1, 4, HIDDEN), "timestep": torch.ones(1), "text_token_ids": torch.ones(1, 1)}
    given["text_token_ids"] = given["text_token_ids"].long()
    with pytest.raises(ValueError, match="scale is above 1, which needs negative_model_inputs"):
        Training.guided_velocity(module, CONFIG, given, None, torch.ones(1))


def test_a_chat_template_that_differs_is_refused() -> None:
    holder = SimpleNamespace(apply_chat_template=lambda turn, **_: f"<u>{turn[0]['content']}</u>")
    require_chat_template(None, "", "")
    require_chat_template(holder, "<u>", "</u>!", "!")
    with pytest.raises(ValueError, match="the checkpoint's chat template makes"):
        require_chat_template(holder, "<s>", "</u>")


def test_a_module_gets_its_own_dtype() -> None:
    args, kwargs = in_dtype_of_module(nn.Linear(1, 1).bfloat16(), (torch.ones(1), 1), {"ids": torch.ones(1).long()})
    assert args[0].dtype == torch.bfloat16
    assert args[1] == 1
    assert kwargs["ids"].dtype == torch.int64
