"""A training module over the weights of an engine that fuses layers in its own way."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn

from flow_grpo_runtime.engine_views import EngineViews
from flow_grpo_runtime.released import ReleasedWeights, Rule


class Engine(nn.Module):
    """Holds q and k in one parameter, and a table with more rows than the checkpoint's."""

    def __init__(self) -> None:
        super().__init__()
        self.qk = nn.Parameter(torch.zeros(8, 6))
        self.table = nn.Parameter(torch.zeros(5, 6))

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        places = {"q": self.qk.data[:4], "k": self.qk.data[4:], "table": self.table.data[:3]}
        for name, tensor in weights:
            if name.endswith("halves"):  # put where it belongs in two pieces
                self.qk.data[:2].copy_(tensor[:2])
                self.qk.data[2:4].copy_(tensor[2:])
            else:
                places[name.removeprefix("model.")].copy_(tensor)


class Training(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_k = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False)
        self.rows = nn.Embedding(3, 6)


WEIGHTS = ReleasedWeights(
    module="Training",
    rules=(
        Rule("rename", ("q",), ("to_q.weight",)),
        Rule("rename", ("k",), ("to_k.weight",)),
        Rule("rename", ("table",), ("rows.weight",)),
        Rule("rename", ("halves",), ("to_q.weight",)),
    ),
    files=("model.safetensors",),
    saved="model.safetensors",
)


def tensors(seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return {"model.q": torch.randn(4, 6), "model.k": torch.randn(4, 6), "model.table": torch.randn(3, 6)}


@pytest.fixture
def engine() -> Engine:
    return Engine()


def load(engine: Engine, views: EngineViews, weights: dict[str, Tensor]) -> None:
    with views.watched() as watched:
        engine.load_weights(watched(weights.items()))


def test_parameters_are_parts_of_the_engines(engine: Engine) -> None:
    views, module, weights = EngineViews(engine, WEIGHTS, "model."), Training(), tensors(1)
    load(engine, views, weights)
    views.bind(module)
    assert torch.equal(module.to_k.weight, weights["model.k"])
    assert torch.equal(module.rows.weight, weights["model.table"])
    assert module.to_k.weight.untyped_storage().data_ptr() == engine.qk.untyped_storage().data_ptr()


def test_a_push_is_followed(engine: Engine) -> None:
    views, module = EngineViews(engine, WEIGHTS, "model."), Training()
    load(engine, views, tensors(1))
    views.bind(module)
    later = tensors(2)
    engine.load_weights(later.items())
    assert torch.equal(module.to_q.weight, later["model.q"])


def test_weights_that_have_moved_are_found_again(engine: Engine) -> None:
    views, module, weights = EngineViews(engine, WEIGHTS, "model."), Training(), tensors(1)
    load(engine, views, weights)
    engine.qk.data = engine.qk.data.clone()
    views.bind(module)
    assert torch.equal(module.to_q.weight, weights["model.q"])


def test_what_the_engine_does_not_hold_in_one_piece_is_named(engine: Engine) -> None:
    views, weights = EngineViews(engine, WEIGHTS, "model."), tensors(1)
    weights["model.halves"] = weights.pop("model.q")
    load(engine, views, weights)
    with pytest.raises(LookupError, match="'q' in one piece"):
        views.bind(Training())


def test_a_parameter_that_the_engine_made_smaller_is_named(engine: Engine) -> None:
    views = EngineViews(engine, WEIGHTS, "model.")
    load(engine, views, tensors(1))
    engine.qk.data = torch.zeros(2, 6)
    with pytest.raises(LookupError, match="has changed qk"):
        views.bind(Training())
