"""One linear layer that is the only one in a module of its own, from the decoder's width to a latent token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaffold.spec.architecture import token_size

if TYPE_CHECKING:
    from scaffold.spec.section import Section

ORDER = 20


def find(section: Section, hidden: int) -> dict[str, Any] | None:
    """Find the layer by its shape, unless the preset names one at the top of the checkpoint."""
    if section.sources.preset.value(section.name, "output_projection") is not None:
        return None
    tensors, shape = section.sources.headers.tensors, (token_size(section.before["latents"]), hidden)
    fitting = [name.removesuffix(".weight") for name, tensor in tensors.items() if tensor.shape == shape]
    alone = [
        name
        for name in fitting
        if f"{name}.bias" in tensors and sum(other.startswith(f"{name.rpartition('.')[0]}.") for other in tensors) == 2
    ]
    if len(alone) != 1:
        return None
    module, _, layer = alone[0].rpartition(".")
    return {"output_projection": module.rpartition(".")[2], "output_layer": layer}


def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Weight and bias."""
    name = f"{architecture['output_projection']}.{architecture['output_layer']}"
    hidden, token = architecture["hidden_size"], token_size(latents)
    return {f"{name}.weight": (token, hidden), f"{name}.bias": (token,)}


def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """No size of its own."""
    return {}
