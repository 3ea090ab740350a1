"""Parameters that a pipeline keeps in float32 are computed with in float32, whatever dtype the trainer gives them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flow_grpo_runtime.layers import WideParameters  # noqa: E402

nn = torch.nn


class Layer(nn.Module):
    """Adds a table of its own to what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.project = nn.Parameter(torch.randn(4)), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        modulation = x + self.table
        return self.project((modulation * 3).to(self.project.weight.dtype)), modulation.dtype


class Model(nn.Module):
    """Keeps tables in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = Layer(), nn.Linear(4, 4)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        dtype = next((value for value in args if isinstance(value, torch.dtype)), kwargs.get("dtype"))
        for name, parameter in self.named_parameters():
            parameter.data = parameter.data.to(torch.float32 if "table" in name else dtype)
        return self

    def forward(self, x: Any) -> Any:
        found, dtype = self.layer(x)
        return self.last(found), dtype


@pytest.fixture
def block() -> Any:
    return WideParameters


def held_in_one_dtype(model: Any) -> Any:
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    return model


@pytest.mark.parametrize("flat", [False, True])
def test_it_is_computed_as_the_pipeline_does(block: Any, flat: bool) -> None:
    """``flat``: as FSDP1 holds parameters, as plain tensors of the module."""
    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 4).bfloat16()
    kept = block.kept(model)
    assert kept == {"layer.table"}
    assert model.last.weight.dtype == torch.float32, "asking changes nothing"
    model.layer.table.data = model.layer.table.data.bfloat16().float()  # as a checkpoint has it
    expected, dtype = copy.deepcopy(model).to(torch.bfloat16)(x)
    assert dtype == torch.float32
    rounded, dtype = held_in_one_dtype(copy.deepcopy(model))(x)
    assert dtype == torch.bfloat16
    assert not torch.equal(rounded, expected)
    names = [name for name, _ in model.named_parameters()]
    block.of(model, kept)
    held_in_one_dtype(model)
    assert type(model.layer).__name__ == "Layer"
    assert [name for name, _ in model.named_parameters()] == names
    table = model.layer.table
    if flat:
        del model.layer.table
        model.layer.table = table.detach().clone().requires_grad_()
        table = model.layer.table
    found, dtype = model(x)
    assert dtype == torch.float32
    assert torch.equal(found, expected)
    assert model.layer.table is table
    found.float().square().sum().backward()
    assert table.grad is not None
    assert table.grad.dtype == torch.bfloat16


def test_a_layer_that_raises_has_its_parameters_again(block: Any) -> None:
    model = Model()
    block.of(model, block.kept(model))
    held_in_one_dtype(model)
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 5))
    assert "table" not in vars(model.layer)
    assert model.layer.table.dtype == torch.bfloat16
