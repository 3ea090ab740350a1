"""What stands between recorded calls, a class of diffusers and the engine's own loader of its weights."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from flow_grpo_runtime.diffusers_module import DiffusersSource, OwnLoader, fold_by_loader, name_layers, take_calls
from flow_grpo_runtime.engine_weights import sent_name
from flow_grpo_runtime.lora_updates import LoraFold
from flow_grpo_runtime.model import CallPlan

PEFT = {"r": 1, "lora_alpha": 2}


class Denoiser(torch.nn.Module):
    """Takes arguments as a class of diffusers does: by name, some of them optional."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, hidden_states: torch.Tensor, return_dict: bool = True) -> tuple[torch.Tensor]:
        return (self.scale * hidden_states,)


class Calls:
    """One recorded call."""

    def __init__(self, **given: Any) -> None:
        self.given, self.dtype = given, torch.float32

    def evaluate(self, denoiser: Any, dtype: torch.dtype) -> torch.Tensor:
        assert dtype is self.dtype
        found: torch.Tensor = denoiser(**self.given)[0]
        return found


def test_a_module_takes_recorded_calls_and_its_own_arguments() -> None:
    module = Denoiser()
    take_calls(module)
    take_calls(module)  # every step asks for it
    states = torch.ones(1, 3)
    assert torch.equal(module(calls=Calls(hidden_states=states, return_dict=False))[0], 2 * states)
    assert torch.equal(module(states)[0], 2 * states)


@pytest.mark.parametrize(
    ("blocks", "own", "named"),
    [(["Block"], None, ["Block"]), (["Block"], ["Layer"], ["Layer"]), (None, None, None)],
)
def test_a_class_that_names_no_layers_for_fsdp_has_those_that_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: Any, own: Any, named: Any
) -> None:
    kind = type("Net", (), {"_repeated_blocks": blocks, "_no_split_modules": own})
    monkeypatch.setitem(sys.modules, "diffusers", SimpleNamespace(Net=kind))
    name_layers(str(tmp_path))  # nothing is there to be read
    (tmp_path / "config.json").write_text('{"_class_name": "Net"}')
    name_layers(str(tmp_path))
    assert vars(kind)["_no_split_modules"] == named
    (tmp_path / "config.json").write_text('{"_class_name": "Unknown"}')
    name_layers(str(tmp_path))


def test_a_copy_of_a_module_calls_its_own_weights() -> None:
    module = Denoiser()
    take_calls(module)
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.scale.fill_(5.0)
    states = torch.ones(1, 3)
    assert torch.equal(other(calls=Calls(hidden_states=states))[0], 5 * states)
    assert torch.equal(module(calls=Calls(hidden_states=states))[0], 2 * states)


def test_an_argument_of_the_engine_alone_is_left_out_only_where_the_package_says_so() -> None:
    states = torch.ones(1, 3)
    module = Denoiser()
    take_calls(module)
    assert torch.equal(module(calls=Calls(hidden_states=states, lengths=None))[0], 2 * states)
    with pytest.raises(TypeError, match=r"gives 'lengths', which Denoiser .*left_out"):
        module(calls=Calls(hidden_states=states, lengths=[3]))
    named = Denoiser()
    take_calls(named, CallPlan(left_out=("lengths",)))
    assert torch.equal(named(calls=Calls(hidden_states=states, lengths=[3]))[0], 2 * states)


def test_an_argument_that_training_calls_otherwise_or_has_at_one_value_only() -> None:
    states = torch.ones(1, 3)
    module = Denoiser()
    take_calls(module, CallPlan(fixed={"strength": 1.0}, renamed={"sample": "hidden_states"}))
    assert torch.equal(module(calls=Calls(sample=states, strength=1.0))[0], 2 * states)
    with pytest.raises(TypeError, match=r"gives 'strength', which Denoiser .* does not take other than 1.0"):
        module(calls=Calls(sample=states, strength=0.5))


class Engine(torch.nn.Module):
    """Fuses two layers, as the engine's classes do, and leaves out what it does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.both = torch.nn.Linear(2, 4, bias=False)
        self.out = torch.nn.Linear(2, 2, bias=False)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        known, filled = dict(self.named_parameters()), set()
        for name, tensor in weights:
            if name in ("to_q.weight", "to_k.weight"):
                rows = slice(0, 2) if name == "to_q.weight" else slice(2, 4)
                known["both.weight"].data[rows] = tensor
                filled.add("both.weight")
            elif name.replace("to_out.0", "out") in known:
                known[name.replace("to_out.0", "out")].data.copy_(tensor)
                filled.add(name.replace("to_out.0", "out"))
        return filled


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {f"{name}.weight": torch.randn(2, 2, generator=generator) for name in ("to_q", "to_k", "to_out.0")}


def test_the_engines_own_loader_takes_names_of_diffusers() -> None:
    engine, sent = Engine(), weights()
    taken = dict(OwnLoader(engine).load(sent.items()))
    assert taken == {"to_q.weight": {"both.weight"}, "to_k.weight": {"both.weight"}, "to_out.0.weight": {"out.weight"}}
    assert torch.equal(engine.both.weight, torch.cat([sent["to_q.weight"], sent["to_k.weight"]]))
    assert torch.equal(engine.out.weight, sent["to_out.0.weight"])
    assert [name for name, _ in engine.named_parameters()] == ["both.weight", "out.weight"]


def test_layers_of_the_adapter_manager_keep_the_names_that_the_loader_knows() -> None:
    engine, sent = Engine(), weights()
    engine.out = torch.nn.ModuleDict({"base_layer": engine.out})  # type: ignore[assignment]
    list(OwnLoader(engine).load(sent.items()))
    assert torch.equal(dict(engine.named_parameters())["out.base_layer.weight"], sent["to_out.0.weight"])


def test_a_weight_that_the_engine_leaves_out_is_an_error() -> None:
    with pytest.raises(KeyError, match=r"Engine has no place for 'proj\.weight'"):
        list(OwnLoader(Engine()).load([("proj.weight", torch.ones(2, 2))]))


def test_lora_is_folded_into_the_checkpoints_weights_and_taken_out_again(tmp_path: Path) -> None:
    engine, base = Engine(), weights()
    (tmp_path / "transformer").mkdir()
    save_file(base, tmp_path / "transformer" / "diffusion_pytorch_model.safetensors")
    fold = LoraFold(lambda: DiffusersSource().weights(str(tmp_path)), sent_name)
    list(OwnLoader(engine).load(base.items()))
    down, up = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]])
    update = {"transformer.to_k.lora_A.weight": down, "transformer.to_k.lora_B.weight": up}
    for _ in range(2):  # nothing adds up
        fold_by_loader(engine, fold, update, PEFT)
        assert torch.allclose(engine.both.weight[2:], base["to_k.weight"] + 2 * up @ down)
        assert torch.equal(engine.both.weight[:2], base["to_q.weight"])
    other = {name.replace("to_k", "to_out.0"): tensor for name, tensor in update.items()}
    fold_by_loader(engine, fold, other, PEFT)
    assert torch.equal(engine.both.weight[2:], base["to_k.weight"])
    absent = {name.replace("to_k", "absent"): tensor for name, tensor in update.items()}
    with pytest.raises(ValueError, match=r"LoRA on 'transformer\.absent': the checkpoint has no weight of that name"):
        fold_by_loader(engine, fold, absent, PEFT)


def test_a_checkpoint_without_weights_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"transformer has no \*\.safetensors"):
        DiffusersSource().weights(str(tmp_path))


def test_a_tensor_that_two_variants_hold_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "transformer").mkdir()
    for name in ("model.safetensors", "model.fp16.safetensors"):
        save_file({"scale": torch.ones(1)}, tmp_path / "transformer" / name)
    with pytest.raises(ValueError, match=r"model.fp16.safetensors and model.safetensors both hold scale: leave one"):
        DiffusersSource().weights(str(tmp_path))


def test_loading_is_left_to_the_trainer_and_lora_may_be_refused() -> None:
    from flow_grpo_runtime.diffusers_module import DiffusersTraining

    class Refusing(DiffusersTraining):
        lora_refused = "the engine drops it"

    assert DiffusersTraining.build_module(SimpleNamespace(lora_rank=0), torch.float32) is None
    with pytest.raises(NotImplementedError, match="the engine drops it"):
        Refusing.build_module(SimpleNamespace(lora_rank=4, lora={}), torch.float32)


def test_training_goes_without_cudnns_attention() -> None:
    from flow_grpo_runtime.diffusers_module import DiffusersTraining

    class Training(DiffusersTraining):
        common = SimpleNamespace(CALLS=CallPlan())

    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        Training.adopt(Denoiser())
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
