"""A checkpoint's tensors reach the training module by the pipeline's own loader, and go back where they were."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase

from flow_grpo_runtime.checkpoint import DenoiserSource
from flow_grpo_runtime.engine_config import EngineConfig
from flow_grpo_runtime.guidance import settings_of
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.module import TrainedDenoiser

FUSED = (("Attention", "qkv", ("q", "k", "v")),)


class Common:
    CFG_DEFAULTS: ClassVar[dict[str, Any]] = {}
    CALLS = CallPlan()
    resolve_guidance = staticmethod(settings_of({}))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.q(x) + self.k(x) * self.v(x)


class Denoiser(nn.Module):
    """Its loader puts three tensors into one of the engine's parameters, or takes them as one."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = Attention(), nn.Linear(4, 4, bias=False)
        self.embed = nn.Embedding(5, 4)
        self.tied = self.embed
        self.register_buffer("angles", torch.ones(2, dtype=torch.complex64))
        self.seen: Tensor | None = None

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        parameters = dict(self.named_parameters())
        for name, tensor in weights:
            if name.startswith("unused"):
                continue
            place, _, kind = name.rpartition(".")
            if place in ("attention.q", "attention.k", "attention.v"):
                slot = parameters[f"attention.qkv.{kind}"]
                slot.weight_loader(slot, tensor, place[-1])
            elif name in parameters:
                parameters[name].data.copy_(tensor)

    def forward(self, x: Tensor) -> Any:
        self.seen = x.mean() if self.seen is None else self.seen
        return (self.out(self.attention(x)) * self.seen + self.embed.weight[0], "beside")


class Trained(TrainedDenoiser, Denoiser, NonDiffusersModelBase):
    """A package's training module."""

    _common = Common
    _no_split_modules: ClassVar[list[str]] = ["Attention", "Absent"]
    _supports_gradient_checkpointing = True
    _state = ((Denoiser, "seen", None),)


def by_files(config: Any) -> tuple[nn.Module, Any]:
    return Denoiser(), [("transformer", "", None)]


def weights(*, fused: bool = False, tied: bool = False) -> dict[str, Tensor]:
    torch.manual_seed(0)
    found = {"out.weight": torch.randn(4, 4), "embed.weight": torch.randn(5, 4)}
    names = ("qkv",) if fused else ("q", "k", "v")
    for name in names:
        rows = 12 if fused else 4
        found |= {f"attention.{name}.weight": torch.randn(rows, 4), f"attention.{name}.bias": torch.randn(rows)}
    return found


def kind(build: Any, base: type = Trained, **source: Any) -> Any:
    return type("Module", (base,), {"_source": DenoiserSource(build, fused=FUSED, **source), "__module__": __name__})


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    (folder / "transformer").mkdir(parents=True)
    parts = list(weights().items())
    for number, part in enumerate((parts[:3], parts[3:])):
        save_file({**dict(part), f"unused.{number}": torch.zeros(2)}, folder / f"transformer/{number}.safetensors")
    listed = {name: f"{number}.safetensors" for number, part in enumerate((parts[:3], parts[3:])) for name, _ in part}
    (folder / "transformer/model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    (folder / "transformer/config.json").write_text('{"width": 4}')
    return folder


def test_weights_go_through_the_denoisers_loader_and_back(release: Path, tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        module = kind(by_files).from_pretrained(str(release), torch_dtype=torch.float32)
    assert "2 tensors of the checkpoint are not used: unused.0, unused.1" in caplog.text
    for name, tensor in weights().items():
        assert torch.equal(module.get_parameter(name), tensor), name
    assert module.embed.weight is module.tied.weight
    assert module._no_split_modules == ["Attention"]
    module.save_pretrained(str(tmp_path / "saved"))
    saved = {k: v for path in (tmp_path / "saved").rglob("*.safetensors") for k, v in load_file(path).items()}
    assert saved.keys() == weights().keys()
    assert json.loads((tmp_path / "saved/transformer/config.json").read_text()) == {"width": 4}
    pieces = kind(by_files).released_pieces(str(release))
    assert [piece.parameter for piece in pieces["transformer/0.safetensors", "out.weight"]] == ["out.weight"]
    assert kind(by_files).unplaced_parameters(str(release), weights().keys()) == set()


def test_a_cast_keeps_complex_tables_and_a_call_leaves_nothing_behind(release: Path) -> None:
    module = kind(by_files).from_pretrained(str(release), torch_dtype=torch.float32)
    assert module.to(torch.bfloat16).angles.dtype == torch.complex64
    module.float()
    for scale in (1.0, 2.0):
        x = torch.full((1, 2, 4), scale)
        made = module(x=x)[0]
        expected = module.out(module.attention(x)) * x.mean() + module.embed.weight[0]
        assert torch.equal(made, expected)
        made.sum().backward()
        assert module.seen is None
    with torch.no_grad():
        module(x=x)
    assert module.seen is None


def test_an_output_without_the_latents_part_is_refused(release: Path) -> None:
    class Strange(Trained):
        def _predict(self, **inputs: Any) -> Any:
            return {"sample": 1}

    module = kind(by_files, Strange).from_pretrained(str(release))
    with pytest.raises(TypeError, match="Module returned a dict, of which the latents' part is not known"):
        module(x=torch.ones(1, 2, 4))


def test_tensors_that_the_pipeline_reads_itself_have_their_keys(release: Path) -> None:
    def handed(config: EngineConfig) -> tuple[nn.Module, Any]:
        found: dict[str, Tensor] = {}
        for number in (0, 1):
            found |= config.load_file(f"{config.model}/transformer/{number}.safetensors")
        return Denoiser(), found.items()

    module = kind(handed, handed=True).from_pretrained(str(release), torch_dtype=torch.float32)
    assert torch.equal(module.attention.k.weight, weights()["attention.k.weight"])
    assert module._checkpoint.keys["out.weight"] == ("transformer/0.safetensors", "out.weight")


def test_tensors_by_name_are_found_in_the_files_by_their_values(tmp_path: Path) -> None:
    found = weights()
    stored = {f"model.{name}": tensor for name, tensor in found.items()}
    save_file({**stored, "vae.out.weight": torch.zeros(4, 4)}, tmp_path / "all.safetensors")

    def by_name(config: Any) -> tuple[nn.Module, Any]:
        return Denoiser(), dict(found)

    module = kind(by_name).from_pretrained(str(tmp_path), torch_dtype=torch.float32)
    assert module._checkpoint.keys["out.weight"] == ("all.safetensors", "model.out.weight")

    def by_file(config: EngineConfig) -> tuple[nn.Module, Any]:
        read = config.load_file(config.model)
        return Denoiser(), {name.removeprefix("model."): t for name, t in read.items() if name.startswith("model.")}

    module = kind(by_file, file=True).from_pretrained(str(tmp_path / "all.safetensors"))
    module.save_pretrained(str(tmp_path / "saved"))
    assert load_file(tmp_path / "saved/all.safetensors").keys() == {*stored, "vae.out.weight"}


class Whole(nn.Module):
    """A pipeline that is one with its denoiser: its modules take weights by name, one cuts them into rows."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = Cutting(), nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.attention(x))


class Cutting(Attention):
    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        parameters = dict(self.named_parameters())
        for name, tensor in weights:
            kind = name.rpartition(".")[2]
            for part, rows in zip("qkv", tensor.split(4), strict=True):
                parameters[f"{part}.{kind}"].data.copy_(rows)


class TrainedWhole(TrainedDenoiser, Whole, NonDiffusersModelBase):
    _common = Common
    _no_split_modules: ClassVar[list[str]] = ["Cutting"]


def own(config: Any) -> tuple[nn.Module, Any]:
    return Whole(), [(None, "", None)]


def test_rows_of_a_tensor_that_was_cut_go_back_to_their_places(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "release").mkdir()
    stored = {name: tensor for name, tensor in weights(fused=True).items() if not name.startswith("embed")}
    save_file({**stored, "vae.weight": torch.ones(1)}, tmp_path / "release/model.safetensors")
    base = kind(own, TrainedWhole, own=True)
    module = base.from_pretrained(str(tmp_path / "release"), torch_dtype=torch.float32)
    assert "tensors of other components are not used, such as vae.weight" in caplog.text
    assert torch.equal(module.attention.v.bias, stored["attention.qkv.bias"][8:])
    pieces = base.released_pieces(str(tmp_path / "release"))["model.safetensors", "attention.qkv.weight"]
    assert [(piece.parameter, piece.at, piece.length) for piece in pieces] == [
        (f"attention.{part}.weight", 4 * place, 4) for place, part in enumerate("qkv")
    ]
    module.save_pretrained(str(tmp_path / "saved"))
    found = load_file(tmp_path / "saved/model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in stored.items())


class Experts(nn.Module):
    """Many experts, of which the engine's loader fills one parameter."""

    def __init__(self) -> None:
        super().__init__()
        for number in range(2):
            layers = {name: nn.Linear(4, 4, bias=False) for name in ("gate_proj", "up_proj", "down_proj")}
            self.add_module(str(number), nn.ModuleDict(layers))


RoutedExperts = type("RoutedExperts", (Experts,), {})


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = RoutedExperts()

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        slots = dict(self.named_parameters())
        for name, tensor in weights:
            number, layer = name.split(".")[1:3]
            shard = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[layer]
            place = f"experts.{'w2' if shard == 'w2' else 'w13'}_weight"
            assert slots[place].weight_loader(slots[place], tensor, place, shard, int(number), return_success=True)


def test_experts_are_apart_in_training(tmp_path: Path) -> None:
    torch.manual_seed(0)
    stored = {f"experts.{n}.{layer}.weight": torch.randn(4, 4) for n in (0, 1) for layer in ("gate_proj", "up_proj")}
    stored |= {f"experts.{n}.down_proj.weight": torch.randn(4, 4) for n in (0, 1)}
    save_file(stored, tmp_path / "model.safetensors")
    trained = type("T", (TrainedDenoiser, Mixture, NonDiffusersModelBase), {"_common": Common, "_no_split_modules": []})
    module = kind(lambda config: (Mixture(), [(None, "", ["*.safetensors"])]), trained).from_pretrained(str(tmp_path))
    for name, tensor in stored.items():
        assert torch.equal(module.get_parameter(name), tensor.bfloat16())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t.pop("out.weight"), ValueError, "does not fit Module; 1 missing: out.weight"),
        (lambda t: t.update({"out.weight": torch.zeros(4, 3)}), ValueError, "1 mis-shaped: out.weight"),
        (lambda t: t.clear(), FileNotFoundError, r"has no \*.safetensors"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named(tmp_path: Path, change: Any, error: type, message: str) -> None:
    found = weights()
    change(found)
    (tmp_path / "transformer").mkdir()
    if found:
        save_file(found, tmp_path / "transformer/model.safetensors")
    with pytest.raises(error, match=message):
        kind(by_files).from_pretrained(str(tmp_path))


def test_a_second_tensor_for_a_parameter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "transformer").mkdir()
    for name in "ab":
        save_file(weights(), tmp_path / f"transformer/{name}.safetensors")
    with pytest.raises(ValueError, match="'.*' is the second tensor that leads to parameter"):
        kind(by_files).from_pretrained(str(tmp_path))


def test_what_cannot_be_loaded_or_saved_is_one_line(release: Path, tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="how the denoiser is loaded is still to be written"):
        kind(None).from_pretrained(str(release))
    with pytest.raises(FileNotFoundError, match="nowhere is no folder"):
        kind(by_files).from_pretrained(str(tmp_path / "nowhere"))
    module = kind(by_files).from_pretrained(str(release))
    with pytest.raises(ValueError, match="saves safetensors only"):
        module.save_pretrained(str(tmp_path), safe_serialization=False)
    checkpoint, module._checkpoint = module._checkpoint, None
    with pytest.raises(ValueError, match="saves what from_pretrained has loaded"):
        module.save_pretrained(str(tmp_path))
    checkpoint.keys["out.weight"] = ("../../outside.safetensors", "out.weight")
    module._checkpoint = checkpoint
    with pytest.raises(ValueError, match="leads out of the checkpoint"):
        module.save_pretrained(str(tmp_path / "saved"))
    del checkpoint.keys["out.weight"]
    with pytest.raises(ValueError, match="'out.weight' is no tensor of the checkpoint"):
        module.save_pretrained(str(tmp_path / "saved"))
    (release / "transformer/config.json").write_text('{"quantization_config": {}}')
    with pytest.raises(ValueError, match="describes quantised weights"):
        kind(by_files).from_pretrained(str(release))


def test_an_adapter_is_saved_and_loaded_again_or_refused(release: Path, tmp_path: Path, caplog: Any) -> None:
    modules = [kind(by_files).from_pretrained(str(release), torch_dtype=torch.float32) for _ in range(3)]
    first, second, third = modules
    first.add_adapter(LoraConfig(r=2, target_modules=["q", "out"], init_lora_weights=False))
    x = torch.randn(1, 2, 4)
    first.save_lora_adapter(str(tmp_path / "adapter"))
    second.load_lora_adapter(str(tmp_path / "adapter"))
    assert torch.allclose(first(x=x)[0], second(x=x)[0])
    assert not torch.allclose(first(x=x)[0], third(x=x)[0])
    first.save_pretrained(str(tmp_path / "saved"))
    assert "writes the weights without the adapter" in caplog.text
    saved = {k: v for path in (tmp_path / "saved").rglob("*.safetensors") for k, v in load_file(path).items()}
    assert torch.equal(saved["out.weight"], weights()["out.weight"])
    with pytest.raises(FileNotFoundError, match="a LoRA adapter needs .*adapter_config.json"):
        third.load_lora_adapter(str(tmp_path))
    path = tmp_path / "adapter/adapter_model.safetensors"
    tensors = load_file(path)
    name = "base_model.model.out.lora_A.weight"
    save_file({**tensors, name: torch.zeros(2, 3)}, path)
    with pytest.raises(ValueError, match=r"1 matrices are missing, unknown or of another shape, such as out.lora_A"):
        third.load_lora_adapter(str(tmp_path / "adapter"))


def test_layers_inside_of_the_module_are_computed_again(release: Path) -> None:
    module = kind(by_files, type("Again", (Trained,), {"_checkpointed": Attention})).from_pretrained(
        str(release), torch_dtype=torch.float32
    )
    module.enable_gradient_checkpointing(lambda function, *args, **kwargs: function(*args, **kwargs))
    assert module.attention.gradient_checkpointing is True
