"""The real checkpoint's keys, the parameters of its training module, and small made-up ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from scaffold.checkpoint import CheckpointFile, CheckpointHeaders, TensorHeader, read_manifest
from scaffold.files.resources import presets_root

Shapes = Mapping[str, Sequence[int]]


def headers_of(shapes: Shapes, dtype: str = "BF16") -> CheckpointHeaders:
    entries = tuple(TensorHeader(name, dtype, tuple(shape), "w.safetensors") for name, shape in shapes.items())
    size = sum(entry.nbytes for entry in entries)
    return CheckpointHeaders("test", (CheckpointFile("w.safetensors", len(entries), size),), entries)


@pytest.fixture(scope="session")
def headers() -> Callable[..., CheckpointHeaders]:
    """Return a function that makes headers of ``{name: shape}``."""
    return headers_of


@pytest.fixture(scope="session")
def real() -> CheckpointHeaders:
    """Return the packaged manifest."""
    return read_manifest(presets_root() / "manifests" / "bagel-7b-mot.ema.json")


@pytest.fixture(scope="session")
def keys(real: CheckpointHeaders) -> dict[str, tuple[int, ...]]:
    """Return the manifest's shapes by key, to alter."""
    return {name: tensor.shape for name, tensor in real.tensors.items()}


@pytest.fixture(scope="session")
def parameters() -> dict[str, tuple[int, ...]]:
    """Return the training module's parameters, written down from the architecture and not from the manifest."""
    hidden, wide, heads, groups, head = 3584, 18944, 28, 4, 128
    table: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (152064, hidden)}
    for layer in range(28):
        at = f"layers.{layer}."
        for path in ("", "_moe_gen"):
            for side, width in (("q", heads * head), ("k", groups * head), ("v", groups * head)):
                table[f"{at}self_attn.{side}_proj{path}.weight"] = (width, hidden)
                table[f"{at}self_attn.{side}_proj{path}.bias"] = (width,)
            table[f"{at}self_attn.o_proj{path}.weight"] = (hidden, heads * head)
            table[f"{at}self_attn.q_norm{path}.weight"] = (head,)
            table[f"{at}self_attn.k_norm{path}.weight"] = (head,)
            table[f"{at}mlp{path}.gate_proj.weight"] = (wide, hidden)
            table[f"{at}mlp{path}.up_proj.weight"] = (wide, hidden)
            table[f"{at}mlp{path}.down_proj.weight"] = (hidden, wide)
            table[f"{at}input_layernorm{path}.weight"] = (hidden,)
            table[f"{at}post_attention_layernorm{path}.weight"] = (hidden,)
    for path in ("", "_moe_gen"):
        table[f"norm{path}.weight"] = (hidden,)
    table |= {"time_embedder.mlp.0.weight": (hidden, 256), "time_embedder.mlp.0.bias": (hidden,)}
    table |= {"time_embedder.mlp.2.weight": (hidden, hidden), "time_embedder.mlp.2.bias": (hidden,)}
    table |= {"vae2llm.weight": (hidden, 64), "vae2llm.bias": (hidden,)}
    table |= {"llm2vae.weight": (64, hidden), "llm2vae.bias": (64,)}
    table["latent_pos_embed.pos_embed"] = (4096, hidden)
    return table
