"""Two linear layers with an activation between them, from the decoder's width to a latent token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaffold.remap import Rule
from scaffold.spec.architecture import shape_of, token_size

if TYPE_CHECKING:
    from scaffold.remap import Rule
    from scaffold.spec.section import Section

ORDER = 10


def find(section: Section, hidden: int) -> dict[str, Any] | None:
    """Find the layers under the module that the source calls for its prediction."""
    path, _ = section.known("detail.modules.output")
    headers = section.sources.headers
    if path is None or f"{path}.2.weight" not in headers.tensors or f"{path}.1.weight" in headers.tensors:
        return None
    return {
        "output_projection": path.rpartition(".")[2],
        "head_intermediate_size": shape_of(headers, f"{path}.0.weight", 2)[0],
    }


def known_rules(section: Section) -> list[Rule]:
    """The layers' keys, under the name that they have in the dictionary of modules."""
    path, origin = section.known("detail.modules.output")
    return [Rule(f"{path}.", f"{path.rpartition('.')[2]}.", origin=origin)] if "." in path else []


def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Weights and biases of both layers."""
    name, hidden, inner = (architecture[key] for key in ("output_projection", "hidden_size", "head_intermediate_size"))
    token = token_size(latents)
    return {
        f"{name}.0.weight": (inner, hidden),
        f"{name}.0.bias": (inner,),
        f"{name}.2.weight": (token, inner),
        f"{name}.2.bias": (token,),
    }


def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """The width between the layers."""
    return {"head_intermediate_size": architecture["head_intermediate_size"]}
