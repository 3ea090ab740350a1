"""One linear layer from a latent token to the decoder's width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaffold.spec.architecture import projection, token_size

if TYPE_CHECKING:
    from scaffold.spec.section import Section

ORDER = 90


def find(section: Section, hidden: int) -> dict[str, Any] | None:
    """Find the layer by its shape, and by the preset's name where shapes leave a choice."""
    shape = (hidden, token_size(section.before["latents"]))
    hint = section.sources.preset.value(section.name, "input_projection")
    return {"input_projection": projection(section.sources.headers, shape, hint)}


def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Weight and bias."""
    name, hidden = architecture["input_projection"], architecture["hidden_size"]
    return {f"{name}.weight": (hidden, token_size(latents)), f"{name}.bias": (hidden,)}


def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """No size of its own."""
    return {}
