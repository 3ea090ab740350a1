"""``FusedMoE``: one gated MLP an expert, under the checkpoint's usual names."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError
from scaffold.port.layers.linear import needed

NAMES = ("FusedMoE",)
# What says how the engine spreads experts over devices, and nothing about what they compute.
PLACEMENT = (
    "reduce_results", "quant_config", "prefix", "tp_size", "ep_size", "dp_size", "pcp_size", "enable_eplb",
    "num_redundant_experts", "params_dtype",
)  # fmt: skip
PARAMETERS = ("num_experts", "top_k", "hidden_size", "intermediate_size", "renormalize", "shared_experts")
# Options with the one value that the counterpart has.
ONLY = {"activation": ("'silu'", '"silu"'), "scoring_func": ("'softmax'", '"softmax"')}


def build(arguments: Arguments, site: Site) -> Built:
    """Return the experts with softmax routing.

    Raises:
        UnsupportedError: groups of experts, or another way to route.
    """
    if arguments.positional:
        raise UnsupportedError("routed experts with positional arguments")
    bound = dict(arguments.keywords)
    for name in list(bound):
        if name in PLACEMENT or (name not in PARAMETERS and bound[name] in ("None", "False", *ONLY.get(name, ()))):
            del bound[name]
    strange = sorted(set(bound) - set(PARAMETERS))
    if strange:
        raise UnsupportedError(f"routed experts with {strange[0]}")
    needed(bound, PARAMETERS[:4])
    given = ", ".join(f"{name}={bound[name]}" for name in PARAMETERS if name in bound)
    return Built(((None, f"{site.support('routed_experts', 'RoutedExperts')}({given})"),))
