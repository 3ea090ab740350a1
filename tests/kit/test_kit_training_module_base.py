"""Gradient checkpointing, LoRA and saving of a toy module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from installed import in_one_worker, require

torch = pytest.importorskip("torch")
require("peft")
pytestmark = in_one_worker


class ToyConfig:
    """As much of a configuration as saving needs."""

    width = 6

    def save_pretrained(self, save_directory: str) -> None:
        Path(save_directory, "config.json").write_text(json.dumps({"width": self.width}))


@pytest.fixture
def toy_class(kit: Path) -> Any:
    from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_proj = torch.nn.Linear(6, 6)
            self.o_proj = torch.nn.Linear(6, 6)

        def forward(self, x: Any, shift: float) -> Any:
            return x + self.o_proj(torch.nn.functional.silu(self.q_proj(x))) + shift

    class Toy(NonDiffusersModelBase):
        _no_split_modules = ["Layer"]  # noqa: RUF012
        _supports_gradient_checkpointing = True

        def __init__(self) -> None:
            super().__init__()
            self.config = ToyConfig()
            self.layers = torch.nn.ModuleList(Layer() for _ in range(2))

        @classmethod
        def from_pretrained(cls, model_path: str, torch_dtype: Any = torch.bfloat16, **kwargs: Any) -> Any:
            return cls().to(torch_dtype)

        def forward(self, hidden_states: Any) -> Any:
            for layer in self.layers:
                hidden_states = self._checkpointed_call(layer, hidden_states, 0.5)
            return (hidden_states,)

    return Toy


@pytest.fixture
def toy(toy_class: Any) -> Any:
    torch.manual_seed(0)
    return toy_class()


X = torch.linspace(-1, 1, 12).view(2, 6)


def lora(*targets: str) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=2, lora_alpha=4, target_modules=list(targets), init_lora_weights="gaussian")


def fill_b(toy: Any, adapter: str = "default") -> None:
    with torch.no_grad():
        for name, parameter in toy.named_parameters():
            if f"lora_B.{adapter}" in name:
                parameter.fill_(0.1)


def test_both_methods_must_be_written(kit: Path) -> None:
    from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase

    assert NonDiffusersModelBase.__abstractmethods__ == {"from_pretrained", "forward"}
    with pytest.raises(TypeError, match="abstract"):
        NonDiffusersModelBase()


def test_checkpointing_runs_only_when_enabled_and_under_grad(toy: Any) -> None:
    calls: list[dict[str, Any]] = []

    def counting(fn: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return torch.utils.checkpoint.checkpoint(fn, *args, **kwargs)

    plain = toy(X)[0]
    plain.square().sum().backward()
    expected = [p.grad.clone() for p in toy.parameters()]
    toy.zero_grad()

    toy.enable_gradient_checkpointing(counting)
    with torch.no_grad():
        toy(X)
    assert calls == []
    checkpointed = toy(X)[0]
    assert calls == [{"use_reentrant": False}] * 2
    checkpointed.square().sum().backward()
    assert torch.equal(checkpointed, plain)
    for parameter, gradient in zip(toy.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_checkpoint_options_never_reach_the_layer(toy: Any) -> None:
    seen: list[dict[str, Any]] = []
    call = toy._checkpointed_call
    assert call(lambda value: value + 1, 1, preserve_rng_state=False) == 2
    toy.enable_gradient_checkpointing(lambda fn, *args, **kwargs: seen.append(kwargs) or fn(*args))
    assert call(lambda value: value + 1, 1, preserve_rng_state=False) == 2
    assert seen == [{"preserve_rng_state": False, "use_reentrant": False}]


def test_default_checkpoint_function_recomputes(toy: Any) -> None:
    count = 0

    def layer(value: Any) -> Any:
        nonlocal count
        count += 1
        return value * value

    toy.enable_gradient_checkpointing()
    toy._checkpointed_call(layer, X.clone().requires_grad_()).sum().backward()
    assert count == 2


def test_checkpointing_must_be_declared(toy_class: Any) -> None:
    class Undeclared(toy_class):
        _supports_gradient_checkpointing = False

    with pytest.raises(ValueError, match="Undeclared does not support"):
        Undeclared().enable_gradient_checkpointing()


def test_lora_goes_where_it_is_aimed_and_can_be_switched(toy: Any) -> None:
    base = toy(X)[0].detach()
    toy.add_adapter(lora("q_proj"))
    injected = {name for name, _ in toy.named_parameters() if "lora_" in name}
    assert injected == {f"layers.{i}.q_proj.lora_{ab}.default.weight" for i in (0, 1) for ab in "AB"}
    assert {name for name, p in toy.named_parameters() if p.requires_grad} == injected
    assert list(toy.peft_config) == ["default"]
    assert torch.equal(toy(X)[0], base), "B starts at zero"

    fill_b(toy)
    adapted = toy(X)[0].detach()
    assert not torch.allclose(adapted, base)
    toy.disable_adapters()
    assert torch.equal(toy(X)[0], base)
    toy.enable_adapters()
    assert torch.equal(toy(X)[0], adapted)


def test_two_adapters(toy: Any) -> None:
    toy.add_adapter(lora("q_proj"), "default")
    fill_b(toy, "default")
    first = toy(X)[0].detach()
    toy.add_adapter(lora("q_proj"), "reference")
    toy.set_adapter("reference")
    second = toy(X)[0].detach()
    assert not torch.allclose(first, second)
    toy.set_adapter("default")
    assert torch.equal(toy(X)[0], first)
    assert sorted(toy.peft_config) == ["default", "reference"]


def test_saved_adapter_loads(toy: Any, toy_class: Any, tmp_path: Path) -> None:
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    config = lora("q_proj")
    toy.add_adapter(config)
    fill_b(toy)
    config.save_pretrained(tmp_path)
    save_file(
        {k: v.contiguous() for k, v in get_peft_model_state_dict(toy).items()}, tmp_path / "adapter_model.safetensors"
    )

    twin = toy_class()
    twin.load_state_dict({k.replace(".base_layer", ""): v for k, v in toy.state_dict().items() if "lora_" not in k})
    twin.load_lora_adapter(str(tmp_path))
    assert torch.equal(twin(X)[0], toy(X)[0])
    with pytest.raises(FileNotFoundError, match=r"adapter_config\.json"):
        twin.load_lora_adapter(str(tmp_path / "nowhere"))


def test_adapter_keys_that_do_not_match_are_logged(toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from safetensors.torch import save_file

    lora("q_proj").save_pretrained(tmp_path)
    save_file({"layers.9.q_proj.lora_A.weight": torch.zeros(2, 6)}, tmp_path / "adapter_model.safetensors")
    toy.load_lora_adapter(str(tmp_path))
    assert "4 keys not in the file" in caplog.text
    assert "layers.9.q_proj.lora_A.weight" in caplog.text


def test_weights_and_config_are_saved(toy: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    target = tmp_path / "new" / "folder"
    toy.save_pretrained(str(target))
    assert {file.name for file in target.iterdir()} == {"config.json", "model.safetensors"}
    saved = load_file(target / "model.safetensors")
    assert saved.keys() == toy.state_dict().keys()
    assert all(torch.equal(saved[name], value) for name, value in toy.state_dict().items())
    assert json.loads((target / "config.json").read_text()) == {"width": 6}

    toy.save_pretrained(str(tmp_path / "bin"), safe_serialization=False)
    assert torch.load(tmp_path / "bin" / "pytorch_model.bin").keys() == saved.keys()


def test_config_that_cannot_be_saved_is_said(toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    toy.config = object()
    toy.save_pretrained(str(tmp_path))
    assert "config.json is not written" in caplog.text
    assert not (tmp_path / "config.json").exists()
