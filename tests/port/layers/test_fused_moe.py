"""``FusedMoE``: experts under the checkpoint's names, softmax routing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.port.conftest import HEAD, PortText, execute, line_of

TEXT = (
    HEAD
    + """
from vllm.model_executor.layers.fused_moe import FusedMoE


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = ReplicatedLinear(4, 3, bias=False)
        self.experts = FusedMoE(
            num_experts=3, top_k=2, hidden_size=4, intermediate_size=6, reduce_results=True, prefix="experts"
        )

    def forward(self, x):
        logits, _ = self.gate(x)
        return self.experts(hidden_states=x, router_logits=logits)
"""
)


def test_routed_experts(port_text: PortText) -> None:
    port = port_text(TEXT)
    model = execute(port).Model()
    assert not port.gaps
    assert model.experts[2].down_proj.weight.shape == (4, 6)
    assert "experts.0.gate_proj.weight" in dict(model.named_parameters())
    x = torch.randn(5, 4)
    found = model(x)
    for token, row in enumerate(x):
        probability = (model.gate.weight @ row).softmax(0)
        best = probability.argsort(descending=True)[:2]
        expected = sum(probability[i] * model.experts[int(i)](row[None])[0] for i in best) / probability[best].sum()
        torch.testing.assert_close(found[token], expected)


def test_a_layer_waits_for_the_device_once(port_text: PortText, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that follow the data are read by the host: of all experts together, not of each."""
    model = execute(port_text(TEXT.replace("num_experts=3", "num_experts=64").replace("4, 3,", "4, 64,"))).Model()
    read = []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: read.append(tensor.shape) or tolist(tensor))
    with Seen() as seen:
        model(torch.randn(5, 4)).sum().backward()
    assert read == [(63,)]
    assert seen.names.isdisjoint({"nonzero", "_local_scalar_dense", "masked_select"})
    assert all(expert.down_proj.weight.grad is not None for expert in model.experts)


class Seen(TorchDispatchMode):
    """Notes what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_weights_that_are_not_made_to_sum_to_one(port_text: PortText) -> None:
    module = execute(port_text(TEXT.replace("top_k=2", "top_k=1, renormalize=False")))
    model = module.Model()
    x = torch.randn(1, 4)
    probability, best = (x @ model.gate.weight.T).softmax(-1).max(-1)
    torch.testing.assert_close(model(x), probability[:, None] * model.experts[int(best)](x))


def test_what_all_tokens_go_through_is_added_once(port_text: PortText) -> None:
    text = TEXT.replace('prefix="experts"', "shared_experts=self.shared, pcp_size=None")
    text = text.replace(
        "        self.experts = ", "        self.shared = nn.Linear(4, 4, bias=False)\n        self.experts = "
    )
    port = port_text(text)
    assert not port.gaps
    model = execute(port).Model()
    assert [name for name, _ in model.named_parameters() if "shared" in name] == ["shared.weight"]
    x = torch.randn(5, 4)
    found = model(x)
    with torch.no_grad():
        added, model.shared.weight[:] = model.shared(x), 0
    torch.testing.assert_close(found, added + model(x))


def test_experts_that_are_chosen_in_groups_raise(port_text: PortText) -> None:
    port = port_text(TEXT.replace('prefix="experts"', "num_expert_group=2"))
    assert [(gap.what, gap.line) for gap in port.gaps] == [
        ("routed experts with num_expert_group", line_of(TEXT, "self.experts = "))
    ]
