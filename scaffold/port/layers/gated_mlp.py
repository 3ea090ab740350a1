"""``Qwen2MLP``, ``Qwen3MLP`` and ``LlamaMLP`` of vllm, used directly."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError
from scaffold.port.layers.linear import needed

NAMES = ("Qwen2MLP", "Qwen3MLP", "LlamaMLP")
PARAMETERS = {
    "Qwen2MLP": ("hidden_size", "intermediate_size", "hidden_act", "quant_config", "prefix"),
    "LlamaMLP": ("hidden_size", "intermediate_size", "hidden_act", "quant_config", "bias", "prefix"),
}


def build(arguments: Arguments, site: Site) -> Built:
    """Return a gated MLP with the checkpoint's ``gate_proj``, ``up_proj`` and ``down_proj``.

    Raises:
        UnsupportedError: LoRA-like or parallel options that this one has no counterpart for.
    """
    parameters = PARAMETERS["LlamaMLP" if arguments.name == "LlamaMLP" else "Qwen2MLP"]
    bound = arguments.bind(parameters)
    hidden, inner = needed(bound, ("hidden_size", "intermediate_size"))
    given = "" if bound.get("bias", "False") == "False" else f", bias={bound['bias']}"
    if "hidden_act" not in bound:
        raise UnsupportedError("a gated MLP without an activation")
    return Built(
        ((None, f"{site.support('gated_mlp', 'GatedMLP')}({hidden}, {inner}, {bound['hidden_act']}{given})"),),
        inside={"gate_up_proj": ("gate_proj", "up_proj")},
    )
