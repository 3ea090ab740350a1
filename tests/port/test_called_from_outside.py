"""Layers that code outside of their class reaches: fused ones, and those whose upstream gives a pair."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from scaffold.port import Port
from tests.port.conftest import HEAD, PortText, Run

EXPERT = """
import operator


class Expert(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.qkv_proj = QKVParallelLinear(hidden_size=w, head_size=8, total_num_heads=4, bias=False)
        self.o_proj = RowParallelLinear(w, w, bias=False)


def by_function(expert, x):
    return expert.qkv_proj(x)[0]


def called(layer, x):
    out, _ = layer(x)
    return out


class Model(nn.Module):
    def __init__(self, w=32):
        super().__init__()
        self.text = Expert(w)
        self.image = Expert(w)
        self.o_proj = RowParallelLinear(w, w) if w < 0 else None

    def by_annotation(self, expert: Expert, x):
        return expert.qkv_proj(x)[0]

    def forward(self, x, text=True):
        expert = self.text if text else self.image
        BODY

    def load_weights(self, weights):
        stacked_params_mapping = [
            (".qkv_proj", ".q_proj", "q"), (".qkv_proj", ".k_proj", "k"), (".qkv_proj", ".v_proj", "v")
        ]
"""
FUSED = {
    "self": "return self.text.qkv_proj(x)[0]",
    "annotated": "return self.by_annotation(self.text, x)",
    "function": "return by_function(self.text, x)",
    "loop": "return [e.qkv_proj(x)[0] for e in (self.text, self.image)][0]",
    "local": "return expert.qkv_proj(x)[0]",
    "getattr": 'return getattr(self.text, "qkv_proj")(x)[0]',
    "getter": 'return operator.attrgetter("qkv_proj")(self.text)(x)[0]',
    "handed on": "return called(expert.qkv_proj, x)",
}
PAIRS = {
    "handed on": "return called(self.text.o_proj, x)",
    "local": "layer = self.text.o_proj\n        return layer(x)[0]",
    "getattr": 'return getattr(self.text, "o_proj")(x)[0]',
    "asked for": "return x if self.o_proj is not None else called(self.text.o_proj, x)",
}


def apart(port: Port, run: Run) -> torch.nn.Module:
    """The model of a port, its fused layers taken apart."""
    from flow_grpo_runtime.upstream import take_apart  # imports peft, so not in every worker

    return take_apart(run(port).Model(), [(entry.owner, entry.name, entry.parts) for entry in port.fused])


@pytest.mark.parametrize("form", FUSED)
def test_a_fused_layer_is_called_by_its_upstream_name(form: str, port_text: PortText, run: Run) -> None:
    port = port_text(HEAD + EXPERT.replace("BODY", FUSED[form]))
    model = apart(port, run)
    x, expert = torch.randn(3, 5, 32), model.text
    parts = [expert.q_proj(x), expert.k_proj(x), expert.v_proj(x)]
    assert torch.allclose(model(x), torch.cat(parts, dim=-1), atol=1e-6)
    assert port.gaps == ()


@pytest.mark.parametrize("form", PAIRS)
def test_a_layer_that_is_handed_on_gives_the_pair_of_upstream(form: str, port_text: PortText, run: Run) -> None:
    model = run(port_text(HEAD + EXPERT.replace("BODY", PAIRS[form]))).Model()
    x = torch.randn(3, 5, 32)
    assert torch.equal(model(x), model.text.o_proj(x)[0])


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_what_the_parts_of_a_fused_layer_lack_raises(name: str, port_text: PortText, run: Run) -> None:
    port = port_text(HEAD + EXPERT.replace("BODY", f"return expert.qkv_proj.{name}"))
    model = apart(port, run)
    with pytest.raises(AttributeError, match=f"{name} of a fused layer"):
        model(torch.randn(1, 2, 32))
