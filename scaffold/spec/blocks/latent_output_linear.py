"""One linear layer from the decoder's width to a latent token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaffold.spec.architecture import projection, token_size

if TYPE_CHECKING:
    from scaffold.spec.section import Section

ORDER = 90


def find(section: Section, hidden: int) -> dict[str, Any] | None:
    """Find the layer by its shape, and by the preset's name where shapes leave a choice."""
    shape = (token_size(section.before["latents"]), hidden)
    hint = section.sources.preset.value(section.name, "output_projection")
    return {"output_projection": projection(section.sources.headers, shape, hint)}


def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Weight and bias."""
    name, hidden, token = architecture["output_projection"], architecture["hidden_size"], token_size(latents)
    return {f"{name}.weight": (token, hidden), f"{name}.bias": (token,)}


def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """No size of its own."""
    return {}
