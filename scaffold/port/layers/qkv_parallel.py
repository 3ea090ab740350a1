"""``QKVParallelLinear``: plain linear layers for queries, keys and values, as the checkpoint holds them."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site
from scaffold.port.layers.linear import dense, factor, needed, pairs

NAMES = ("QKVParallelLinear",)
PARAMETERS = (
    "hidden_size", "head_size", "total_num_heads", "total_num_kv_heads", "bias", "skip_bias_add", "params_dtype",
    "quant_config", "prefix", "return_bias", "disable_tp", "v_head_size",
)  # fmt: skip


def build(arguments: Arguments, site: Site) -> Built:
    """Return the three layers, or one where the checkpoint holds them fused."""
    bound = arguments.bind(PARAMETERS)
    columns, width, heads = needed(bound, ("hidden_size", "head_size", "total_num_heads"))
    kv_heads = bound.get("total_num_kv_heads", "None")
    kv_heads = heads if kv_heads == "None" else kv_heads
    value_width = bound.get("v_head_size", "None")
    value_width = width if value_width == "None" else value_width
    rows = [
        f"{factor(heads)} * {factor(width)}",
        f"{factor(kv_heads)} * {factor(width)}",
        f"{factor(kv_heads)} * {factor(value_width)}",
    ]
    reads = {
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "total_num_heads": heads,
        "total_num_kv_heads": kv_heads,
        "head_size": width,
        "num_kv_head_replicas": "1",
    }
    names = site.parts(3)
    if names is None:
        return Built(((None, dense(bound, " + ".join(rows), columns, site)),), pairs(bound), reads)
    return Built(
        tuple((n, dense(bound, r, columns, site)) for n, r in zip(names, rows, strict=True)), pairs(bound), reads
    )
