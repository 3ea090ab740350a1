"""vllm-omni's ``Attention`` layer: torch's scaled dot-product attention in the same layout."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError

NAMES = ("Attention",)
PARAMETERS = (
    "num_heads", "head_size", "causal", "softmax_scale", "num_kv_heads", "prefix", "role", "role_category",
    "qkv_layout", "scatter_idx", "gather_idx", "use_sync", "skip_sequence_parallel", "disable_kv_quant",
    "paged_kv_cache_role", "paged_kv_cache_dtype", "custom_attention", "allow_fp32_fallback", "impl_overrides",
)  # fmt: skip
FIXED = {
    "attn_backend.get_name()": '"SDPA"',
    "attn_backend.supports_piecewise_spans": "True",
    "attn_backend.supports_prefix_kv_slicing": "False",
    "attn_backend.supports_packed_mask_free()": "False",
    "attn_backend.supports_multi_doc_packed_varlen()": "False",
    "attn_backend.supports_attention_mask()": "True",
    "is_paged_kv_active()": "False",
    "use_ring": "False",
}


def build(arguments: Arguments, site: Site) -> Built:
    """Return attention with upstream's scale and causality.

    Raises:
        UnsupportedError: the layer brings a kernel of its own, or positional arguments whose order differs by version.
    """
    if len(arguments.positional) > 2:
        raise UnsupportedError("attention with positional arguments")
    bound = arguments.bind(PARAMETERS)
    for name in ("custom_attention", "impl_overrides"):
        if bound.get(name, "None") != "None":
            raise UnsupportedError(f"attention with {name}")
    given = [f"{name}={bound[name]}" for name in ("softmax_scale", "causal") if name in bound]
    for name in ("num_heads", "head_size", "num_kv_heads"):
        if name in bound:
            given.append(f"{name}={bound[name]}")
    return Built(((None, f"{site.support('attention', 'DenseAttention')}({', '.join(given)})"),), fixed=FIXED)
