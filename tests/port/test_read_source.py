"""What is read of a denoiser's source: counterparts, switches that nothing sets, layers that can be computed again."""

from __future__ import annotations

import ast

import pytest

from scaffold.port.counterparts import counterparts
from scaffold.port.layer_lists import recomputed
from scaffold.port.unset import without_unset
from tests.port.conftest import HEAD, PortText

SWITCH = """
class Block(nn.Module):
    def __init__(self, size, after=False, scale=None, bias=False):
        self.first = nn.Linear(size, size, bias=bias)
        self.after = nn.Linear(size, size) if after else None
        if scale is not None:
            self.scale = nn.Linear(1, size)
        if not after:
            self.last = nn.Linear(size, size)


class Model(nn.Module):
    def __init__(self, size=4):
        self.blocks = nn.ModuleList([Block(MADE) for _ in range(2)])

    def forward(self, x, cache=None):
        for LOOP:
            x = CALL
        return x
"""


def text(made: str = "size", loop: str = "block in self.blocks", call: str = "block(x)") -> ast.Module:
    return ast.parse(SWITCH.replace("MADE", made).replace("LOOP", loop).replace("CALL", call))


def test_the_table_of_the_runtime_is_read_as_it_is() -> None:
    layers = pytest.importorskip("flow_grpo_runtime.upstream_layers")
    found = counterparts()
    assert found.names == layers.ANSWERS.keys()
    for name, kind in found.kinds.items():
        assert isinstance(getattr(layers, kind), type), name
    assert found.is_linear("RowParallelLinear")
    assert found.is_fused("QKVParallelLinear")
    assert not found.is_linear("RMSNorm")


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ("size", {"first", "after", "last"}),
        ("size, after=True", {"first", "after", "last"}),
        ("size, scale=1.0", {"first", "after", "last", "scale"}),
        ("size, False, 2.0", {"first", "after", "last", "scale"}),
        ("size, **given", {"first", "after", "last", "scale"}),
    ],
)
def test_what_no_call_switches_on_is_no_part(made: str, kept: set[str]) -> None:
    tree = without_unset(text(made))
    block = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    stored = {node.attr for node in ast.walk(block) if isinstance(node, ast.Attribute) and node.value.id == "self"}  # type: ignore[attr-defined]
    assert stored == kept
    after = ast.unparse(block)
    assert ("nn.Linear(size, size) if after" in after) is ("after" in made or "False" in made or "**" in made)


@pytest.mark.parametrize(
    ("loop", "call", "found"),
    [
        ("block in self.blocks", "block(x)", ("Block",)),
        ("i, block in enumerate(self.blocks[1:])", "block(x, i)", ("Block",)),
        ("block, y in zip(self.blocks, x)", "block(y)", ("Block",)),
        ("block in self.blocks", "block(x, past_key_values=cache)", ()),  # it would add to the cache twice
        ("block in self.blocks", "block.weight", ()),
        ("block in x", "block(x)", ()),
    ],
)
def test_layers_that_a_loop_calls_can_be_computed_again(loop: str, call: str, found: tuple[str, ...]) -> None:
    assert recomputed(text(loop=loop, call=call)) == found


def test_layers_are_those_that_training_has(port_text: PortText) -> None:
    port = port_text(
        HEAD
        + """
from vllm.model_executor.models.qwen3 import Qwen3MLP


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.to_qkv = QKVParallelLinear(size, 4, 2)
        self.to_out = RowParallelLinear(size, size)
        self.mlp = Qwen3MLP(size, 2 * size, "silu")

    def forward(self, x):
        return self.mlp(self.to_out(self.to_qkv(x)[0])[0])

    def load_weights(self, weights):
        rows = [("to_qkv", "to_q", "q"), ("to_qkv", "to_k", "k"), ("to_qkv", "to_v", "v")]


class Model(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.blocks = nn.ModuleList([Block(size) for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""
    )
    assert [(entry.owner, entry.name, entry.parts) for entry in port.fused] == [
        ("Block", "gate_up_proj", ("gate_proj", "up_proj")),
        ("Block", "to_qkv", ("to_q", "to_k", "to_v")),
    ]
    assert port.checkpointed == port.layer_classes == ("Block",)
    for name in ("to_q", "to_k", "to_v", "to_out", "gate_proj"):
        assert f"self.{name} = nn.Linear(" in port.source
