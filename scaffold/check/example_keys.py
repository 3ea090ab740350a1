"""The ``scaffold.toml`` of the examples' package: the checkpoint keys that its training module takes."""

from __future__ import annotations

from collections.abc import Iterator

_LAYER = "layers.{0..1}"


def _names() -> Iterator[tuple[str, str]]:
    for side in ("", "_gen"):
        for place in ("q", "k", "v"):
            yield f"{_LAYER}.self_attn.{place}_proj{side}.weight", ""
            yield f"{_LAYER}.self_attn.{place}_proj{side}.bias", ""
        yield f"{_LAYER}.self_attn.o_proj{side}.weight", ""
        for place in ("gate", "up", "down"):
            yield f"{_LAYER}.mlp{side}.{place}_proj.weight", ""
        yield f"{_LAYER}.input_layernorm{side}.weight", ""
    yield "embed_tokens.weight", ""
    yield "norm.weight", ""
    for name in ("vae2llm", "llm2vae", "time_embedder.mlp.0", "time_embedder.mlp.2"):
        yield f"{name}.weight", name
        yield f"{name}.bias", name
    yield "latent_pos_embed.weight", "latent_pos_embed"


def recorded_spec() -> str:
    """Return the tables ``[[checkpoint.table]]`` of the examples' package."""
    rows = [(name if own else f"language_model.model.{name}", name) for name, own in _names()]
    rows.append(("language_model.lm_head.", ""))
    return "".join(f'[[checkpoint.table]]\nsource = "{source}"\ntarget = "{target}"\n\n' for source, target in rows)
