"""Ways from the decoder's width to a latent token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaffold.remap import Rule
from scaffold.spec.architecture import projection, shape_of, token_size

if TYPE_CHECKING:
    from scaffold.spec.section import Section


class Mlp:
    """Two linear layers with an activation between them, from the decoder's width to a latent token."""

    ORDER = 10

    @staticmethod
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

    @staticmethod
    def known_rules(section: Section) -> list[Rule]:
        """The layers' keys, under the name that they have in the dictionary of modules."""
        path, origin = section.known("detail.modules.output")
        return [Rule(f"{path}.", f"{path.rpartition('.')[2]}.", origin=origin)] if "." in path else []

    @staticmethod
    def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Weights and biases of both layers."""
        name, hidden, inner = (
            architecture[key] for key in ("output_projection", "hidden_size", "head_intermediate_size")
        )
        token = token_size(latents)
        return {
            f"{name}.0.weight": (inner, hidden),
            f"{name}.0.bias": (inner,),
            f"{name}.2.weight": (token, inner),
            f"{name}.2.bias": (token,),
        }

    @staticmethod
    def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
        """The width between the layers."""
        return {"head_intermediate_size": architecture["head_intermediate_size"]}


class Wrapped:
    """One linear layer that is the only one in a module of its own, from the decoder's width to a latent token."""

    ORDER = 20

    @staticmethod
    def find(section: Section, hidden: int) -> dict[str, Any] | None:
        """Find the layer by its shape, unless the preset names one at the top of the checkpoint."""
        if section.sources.preset.value(section.name, "output_projection") is not None:
            return None
        tensors, shape = section.sources.headers.tensors, (token_size(section.before["latents"]), hidden)
        fitting = [name.removesuffix(".weight") for name, tensor in tensors.items() if tensor.shape == shape]
        alone = [
            name
            for name in fitting
            if f"{name}.bias" in tensors
            and sum(other.startswith(f"{name.rpartition('.')[0]}.") for other in tensors) == 2
        ]
        if len(alone) != 1:
            return None
        module, _, layer = alone[0].rpartition(".")
        return {"output_projection": module.rpartition(".")[2], "output_layer": layer}

    @staticmethod
    def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Weight and bias."""
        name = f"{architecture['output_projection']}.{architecture['output_layer']}"
        hidden, token = architecture["hidden_size"], token_size(latents)
        return {f"{name}.weight": (token, hidden), f"{name}.bias": (token,)}

    @staticmethod
    def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
        """No size of its own."""
        return {}


class Linear:
    """One linear layer from the decoder's width to a latent token."""

    ORDER = 90

    @staticmethod
    def find(section: Section, hidden: int) -> dict[str, Any] | None:
        """Find the layer by its shape, and by the preset's name where shapes leave a choice."""
        shape = (token_size(section.before["latents"]), hidden)
        hint = section.sources.preset.value(section.name, "output_projection")
        return {"output_projection": projection(section.sources.headers, shape, hint)}

    @staticmethod
    def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Weight and bias."""
        name, hidden, token = architecture["output_projection"], architecture["hidden_size"], token_size(latents)
        return {f"{name}.weight": (token, hidden), f"{name}.bias": (token,)}

    @staticmethod
    def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
        """No size of its own."""
        return {}
