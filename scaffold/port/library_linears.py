"""Linear layers that classes of libraries hold: a port imports these classes, so its text does not show them.

Names are those of diffusers 0.38.0 to 0.40.0; a test makes each class and compares.
"""

from __future__ import annotations

import ast

_ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")
_ADDED = ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
_ADDS = "added_kv_proj_dim"

LINEARS: dict[str, tuple[str, ...]] = {
    "diffusers.models.attention_processor.Attention": _ATTENTION,
    "diffusers.models.attention.Attention": _ATTENTION,
    "diffusers.models.attention.FeedForward": ("net.0.proj", "net.2"),
    "diffusers.models.attention.AdaLayerNorm": ("linear",),
    "diffusers.models.normalization.AdaLayerNorm": ("linear",),
    "diffusers.models.normalization.FP32LayerNorm": (),
    "diffusers.models.embeddings.PixArtAlphaTextProjection": ("linear_1", "linear_2"),
    "diffusers.models.embeddings.SinusoidalPositionalEmbedding": (),
    "diffusers.models.embeddings.TimestepEmbedding": ("linear_1", "linear_2"),
    "diffusers.models.embeddings.Timesteps": (),
    "transformers.models.qwen2.modeling_qwen2.Qwen2RMSNorm": (),
}
# Modules of torch whose weights are not linear layers that LoRA could take the place of, or hold such.
_OF_TORCH = frozenset({"MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerEncoderLayer",
                       "TransformerDecoder", "TransformerDecoderLayer", "Bilinear", "LSTM", "GRU", "RNN"})  # fmt: skip
# Endings of classes that are not modules.
_NO_MODULES = ("Config", "Output", "OutputWithPast", "Cache", "Mixin", "Path", "Dict", "Namespace", "Processor", "Norm")


def linears_of(origin: str, call: ast.Call | None = None) -> tuple[str, ...] | None:
    """Return the names of the linear layers of a library's class, from its own; None where that is not known.

    Args:
        origin: dotted name by which the text imports it.
        call: that makes one; some arguments add layers.
    """
    found = LINEARS.get(origin)
    if found is None:
        return None
    given = [keyword for keyword in call.keywords if keyword.arg == _ADDS] if call is not None else []
    added = any(not (isinstance(k.value, ast.Constant) and k.value.value is None) for k in given)
    return (*found, *_ADDED) if found == _ATTENTION and added else found


def may_hold_linears(origin: str) -> bool:
    """Whether a class that is not of the text may be a module with weights of its own that nobody has looked at."""
    library, _, name = origin.rpartition(".")
    if library == "torch.nn":
        return name in _OF_TORCH
    return library.startswith(("diffusers.", "transformers.")) and name[:1].isupper() and not name.endswith(_NO_MODULES)
