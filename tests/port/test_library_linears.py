"""Linear layers of libraries' classes: what the table says is what the classes make."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from scaffold.port.linears import LINEARS, find_layout, linears_of

GIVEN: dict[str, dict[str, Any]] = {
    "Attention": {"query_dim": 8, "heads": 2, "dim_head": 4},
    "FeedForward": {"dim": 8},
    "AdaLayerNorm": {"embedding_dim": 8, "num_embeddings": 4},
    "FP32LayerNorm": {"normalized_shape": 8},
    "PixArtAlphaTextProjection": {"in_features": 8, "hidden_size": 8},
    "SinusoidalPositionalEmbedding": {"embed_dim": 8, "max_seq_length": 4},
    "TimestepEmbedding": {"in_channels": 8, "time_embed_dim": 8},
    "Timesteps": {"num_channels": 8, "flip_sin_to_cos": True, "downscale_freq_shift": 0},
    "Qwen2RMSNorm": {"hidden_size": 8},
}
TEXT = """
from diffusers.models.attention_processor import Attention
from diffusers.models.embeddings import TimestepEmbedding
from transformers.models.gemma.modeling_gemma import GemmaMLP


class Layer(nn.Module):
    def __init__(self):
        self.attn = Attention(query_dim=8{added})
        self.linear_1 = nn.Linear(8, 8)
        {more}


class Net(nn.Module):
    def __init__(self):
        self.time = TimestepEmbedding(8, 8)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
"""


def layout(added: str = "", more: str = "pass") -> Any:
    return find_layout(TEXT.replace("{added}", added).replace("{more}", more), "Net", ("Layer",))


@pytest.mark.parametrize("origin", LINEARS)
def test_the_table_is_what_the_class_makes(origin: str) -> None:
    torch = pytest.importorskip("torch")
    library, _, name = origin.rpartition(".")
    pytest.importorskip(origin.partition(".")[0])
    cls = getattr(importlib.import_module(library), name, None)
    if cls is None:
        pytest.skip(f"{library} has no {name} in this release")
    made = cls(**GIVEN[name])
    assert {n for n, module in made.named_modules() if isinstance(module, torch.nn.Linear)} == set(LINEARS[origin])


def test_attention_of_a_library_is_followed() -> None:
    found = layout()
    assert set(found.targets) == {"to_q", "to_k", "to_v", "to_out.0"}
    assert found.unnamed == (("layers", "*", "linear_1"),)  # the time's embedding has one of that name
    assert ("time", "linear_1") in found.outside
    assert found.unread == ()


def test_arguments_that_add_layers_add_targets() -> None:
    assert "add_k_proj" in layout(added=", added_kv_proj_dim=8").targets
    assert "add_k_proj" not in layout(added=", added_kv_proj_dim=None").targets
    assert linears_of("transformers.models.gemma.modeling_gemma.GemmaMLP") is None


def test_a_class_that_nobody_looked_at_is_named() -> None:
    found = layout(more="self.mlp = GemmaMLP(8)")
    assert found.unread == ("transformers.models.gemma.modeling_gemma.GemmaMLP",)
    assert layout(more="self.cross = nn.MultiheadAttention(8, 2)").unread == ("torch.nn.MultiheadAttention",)
