"""Two linear layers, one after the other, from a patch of pixels to the decoder's width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaffold.spec.architecture import token_size

if TYPE_CHECKING:
    from scaffold.spec.section import Section

ORDER = 20


def find(section: Section, hidden: int) -> dict[str, Any] | None:
    """Return names and width of the only pair of layers in a module of their own that lead to the decoder's width."""
    tensors, token = section.sources.headers.tensors, token_size(section.before["latents"])
    pairs = []
    for name, tensor in tensors.items():
        module, _, first = name.removesuffix(".weight").rpartition(".")
        if not (name.endswith(".weight") and module and len(tensor.shape) == 2 and tensor.shape[1] == token):
            continue
        inside = [n for n in tensors if n.startswith(f"{module}.") and n.endswith(".weight")]
        others = [n for n in inside if tensors[n].shape == (hidden, tensor.shape[0]) and n != name]
        if len(inside) == 2 and others:
            pairs.append((module, first, others[0].removesuffix(".weight").rpartition(".")[2], tensor.shape[0]))
    if len(pairs) != 1:
        return None
    module, first, second, inner = pairs[0]
    return {
        "input_projection": module.rpartition(".")[2],
        "input_layers": [first, second],
        "input_biases": [f"{module}.{layer}.bias" in tensors for layer in (first, second)],
        "bottleneck_size": inner,
    }


def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Weights of both layers, and the biases that they have."""
    name, layers = architecture["input_projection"], architecture["input_layers"]
    inner, hidden = architecture["bottleneck_size"], architecture["hidden_size"]
    shapes = [(inner, token_size(latents)), (hidden, inner)]
    found: dict[str, tuple[int, ...]] = {}
    for layer, shape, bias in zip(layers, shapes, architecture["input_biases"], strict=True):
        found[f"{name}.{layer}.weight"] = shape
        if bias:
            found[f"{name}.{layer}.bias"] = shape[:1]
    return found


def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """The width between the layers."""
    return {"bottleneck_size": architecture["bottleneck_size"]}
