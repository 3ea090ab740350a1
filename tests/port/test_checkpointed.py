"""Calls of layers in loops go through ``_checkpointed_call``: they run twice, and gradients stay what they are."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from scaffold.port.checkpointed import CALLED, checkpoint_layers
from tests.port.conftest import HEAD, PortText, execute

MODEL = (
    HEAD
    + """

class Small(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.parts = nn.ModuleList([Small(), Small()])

    def forward(self, x, scale, shift=0.0):
        for part in self.parts:
            x = part(x)
        return self.linear(x) * scale + shift


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x, 2.0, shift=1.0)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        layers = []
        for _ in range(3):
            layers.append(Block())
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        x = self.inner(x)
        for index, layer in enumerate(self.layers):
            x = layer(x, 0.5, **{"shift": index})
        return x
"""
)


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(torch.arange(8.0).reshape(2, 4) / 8).square().mean().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_layers_run_twice_and_gradients_stay(port_text: PortText) -> None:
    port = port_text(MODEL)
    module = execute(port)
    assert port.checkpointed == ("Block",)
    model, runs = module.Model(), []
    for block in model.modules():
        if isinstance(block, module.Block):
            block.register_forward_pre_hook(lambda *_: runs.append(1))
    plain = gradients(model)
    assert len(runs) == 5
    for inner in model.modules():
        if isinstance(inner, module.CheckpointedLayers):
            inner.gradient_checkpointing = True
    runs.clear()
    again = gradients(model)
    assert len(runs) == 10
    assert len(plain) == 10
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[name], again[name]) for name in plain)
    runs.clear()
    with torch.no_grad():
        model(torch.ones(1, 4))
    assert len(runs) == 5  # nothing to recompute for


def test_what_a_layer_is_made_of_is_left_alone(port_text: PortText) -> None:
    source = port_text(MODEL).source
    assert "x = part(x)" in source
    assert source.count("self._checkpointed_call(") == 2


def test_a_function_of_the_trainer_is_used(port_text: PortText) -> None:
    model, seen = execute(port_text(MODEL)).Model(), []

    def checkpoint(layer: object, *args: object, **options: object) -> object:
        seen.append(options)
        return layer(*args)  # type: ignore[operator]

    model.gradient_checkpointing, model._gradient_checkpointing_func = True, checkpoint
    gradients(model)
    assert seen == [{"use_reentrant": False}] * 3  # those of the inner module are not switched on here


@pytest.mark.parametrize(
    "call", ["layer(x, 1.0, past_key_values=cache)", "self.layers[0](x, 1.0)"], ids=["growing cache", "by index"]
)
def test_what_cannot_be_recomputed_or_is_no_loop_stays(port_text: PortText, call: str) -> None:
    text = MODEL.replace('x = layer(x, 0.5, **{"shift": index})', f"cache = x\n            x = {call}")
    port = port_text(text.replace("x = block(x, 2.0, shift=1.0)", "x = x + 1"))
    assert not port.checkpointed
    assert "_checkpointed_call" not in port.source


def test_a_class_and_its_base_share_the_call(port_text: PortText) -> None:
    text = MODEL.replace("class Model(nn.Module):", "class Base(nn.Module):") + (
        "\n\nclass Model(Base):\n    def forward(self, x):\n"
        "        for layer in self.layers:\n            x = layer(x, 1.0)\n        return super().forward(x)\n"
    )
    module = execute(port_text(text))
    assert module.Model.__mro__.count(module.CheckpointedLayers) == 1
    assert module.Model()(torch.ones(1, 4)).shape == (1, 4)


FUNCTION = """
import torch
import torch.nn as nn
from transformers import Decoder


def scaled(x):
    return x * 2


def run_layer(number, x, decoder, mask=None):
    layer = decoder.layers[number]
    x = layer.mlp(x) + scaled(x)
    return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = Decoder(3)

    def forward(self, x):
        for number in range(3):
            x = run_layer(number, x, decoder=self.decoder)
        return x
"""


def test_functions_that_compute_a_layer() -> None:
    done = checkpoint_layers(FUNCTION)
    assert done.layers == ("run_layer",)
    assert done.owners == ("Model",)
    assert done.called
    called = "partial(self.decoder.layers[number], partial(run_layer, decoder=self.decoder))"
    assert f"self._checkpointed_call({called}, number, x)" in done.text
    assert "        call_as_modules(self.decoder.layers)\n" in done.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        self.decoder = Decoder(3)", "        self.make()"),
        ("decoder=self.decoder)", "decoder=decoders[0])"),
        ("decoder.layers[number]", "decoder.parts().layers[number]"),
        ("    layer = decoder", "    if mask:\n        decoder = decoder.inner\n    layer = decoder"),
    ],
)
def test_layers_that_are_held_elsewhere_are_called_as_they_were(old: str, new: str) -> None:
    done = checkpoint_layers(FUNCTION.replace(old, new))
    assert not done.called
    assert CALLED not in done.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("layer.mlp(x) + scaled(x)", "layer.mlp(x, past_key_values=mask)"),
        ("layer.mlp(x) + scaled(x)", "layer.mlp(x).add_(1)"),
        ("    return x\n\n\nclass", "    decoder.seen = x\n    return x\n\n\nclass"),
        ("    return x\n\n\nclass", "    x[0] = 0\n    return x\n\n\nclass"),
        ("    return x\n\n\nclass", "    mask.append(x)\n    return x\n\n\nclass"),
        ("return x * 2", "x *= x\n    return x"),
        ("decoder.layers[number]", "decoder.layers[0]"),
        ("= run_layer(number, x", "= run_layer(0, x"),
        ("in range(3)", "in self.numbers"),
        ("layer.mlp(x) + scaled(x)", "scaled(x) + layer.bias"),
    ],
)
def test_functions_that_a_second_run_would_change(old: str, new: str) -> None:
    assert old in FUNCTION
    assert checkpoint_layers(FUNCTION.replace(old, new)).layers == ()


SHARDED = """
import torch
import torch.nn as nn
from layers_elsewhere import Layer


def run_layer(number, x, decoder):
    model = decoder.model
    layer = model.layers[number]
    return torch.tanh(layer.mlp(x)) + x


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.layers = nn.ModuleList([Layer(), Layer()])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = Decoder()

    def forward(self, x):
        for number in range(2):
            x = run_layer(number, x, self.decoder)
        return x
"""


class Layer(torch.nn.Module):
    """One that its own ``forward`` computes otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -self.mlp(x)


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[object]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    finally:
        torch.distributed.destroy_process_group()


def test_a_layer_that_a_function_computes_is_sharded_as_one(
    port_text: PortText, mesh: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed.fsdp import fully_shard

    elsewhere = types.ModuleType("layers_elsewhere")
    elsewhere.Layer = Layer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "layers_elsewhere", elsewhere)
    port = port_text(SHARDED)
    assert port.layer_classes == ("CalledLayer",)
    module = execute(port)
    torch.manual_seed(0)
    model = module.Model()
    plain = gradients(model)
    layers = [inner for inner in model.modules() if type(inner).__name__ in port.layer_classes]
    assert len(layers) == 2
    assert all(isinstance(layer, Layer) for layer in layers)
    assert torch.equal(layers[0](torch.ones(1, 4)), -layers[0].mlp(torch.ones(1, 4)))
    model.gradient_checkpointing = True
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    again = gradients(model)
    assert len(plain) == 4
    assert all(torch.equal(plain[name], again[name].to_local()) for name in plain)  # type: ignore[attr-defined]


def test_without_such_calls_its_weights_stay_sharded(mesh: object) -> None:
    from torch.distributed.fsdp import fully_shard

    layer = Layer()
    fully_shard(layer, mesh=mesh)
    with pytest.raises(RuntimeError, match="DTensor"):
        layer.mlp(torch.ones(1, 4))
