"""Layers of ported packages that are handed float32 compute in it, whatever dtype the trainer gives their weights."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flow_grpo_runtime.layers import WideInputs  # noqa: E402

pytestmark = pytest.mark.xdist_group("peft and diffusers")
nn = torch.nn


class Model(nn.Module):
    """A timestep's layers in float32, the others in the dtype of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.SiLU(), nn.Conv1d(8, 4, 1))
        self.project = nn.Linear(4, 4)

    def forward(self, x: Any, level: Any) -> Any:
        embedding = self.time[2](self.time[1](self.time[0](level)))
        return self.project(x), self.time[3](embedding[..., None])[..., 0]


@pytest.fixture
def wide() -> Any:
    return WideInputs


def test_float32_goes_through_rounded_weights_unrounded(wide: Any) -> None:
    torch.manual_seed(0)
    model, x, level = Model().bfloat16(), torch.randn(2, 4).bfloat16(), torch.randn(2, 4)
    names = [name for name, _ in model.named_parameters()]
    with pytest.raises(RuntimeError, match="dtype"):
        model(x, level)
    wide.of(model)
    assert isinstance(model.project, nn.Linear)
    assert [name for name, _ in model.named_parameters()] == names
    projected, embedding = model(x, level)
    exact = Model()
    exact.load_state_dict({name: tensor.float() for name, tensor in model.state_dict().items()})
    assert projected.dtype == torch.bfloat16
    assert torch.equal(projected, nn.functional.linear(x, model.project.weight, model.project.bias))
    assert embedding.dtype == torch.float32
    assert torch.equal(embedding, exact(x.float(), level)[1])
    embedding.square().sum().backward()
    assert model.time[0].weight.grad.dtype == torch.bfloat16
    assert model.time[0].weight.grad.any()


def test_autocast_decides_where_it_is_on(wide: Any) -> None:
    model = Model().bfloat16()
    wide.of(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.project(torch.randn(2, 4)).dtype == torch.bfloat16


def test_a_lora_matrix_takes_float32(wide: Any) -> None:
    peft = pytest.importorskip("peft")
    model = Model().bfloat16()
    wide.of(model)
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["time.0"]), model)
    model.bfloat16()  # as sharding gathers them
    model.time[0].cast_input_dtype_enabled = False  # as the engine does
    level = torch.randn(2, 4)
    with pytest.raises(RuntimeError, match="dtype"):
        model.time[0](level)
    wide.of(model)
    assert model.time[0](level).dtype == torch.float32
