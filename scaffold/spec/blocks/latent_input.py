"""Ways from a latent token, or a patch of pixels, to the decoder's width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.remap import Rule
from scaffold.spec.architecture import projection, shape_of, token_size

if TYPE_CHECKING:
    from scaffold.spec.section import Section


class Patches:
    """Two convolutions over the pixels of a token: one over each part of it, one that merges the parts."""

    ORDER = 10

    @staticmethod
    def find(section: Section, hidden: int) -> dict[str, Any] | None:
        """Return the modules' names and sizes.

        Raises:
            ScaffoldError: the last convolution does not lead to the decoder's width.
        """
        found = patch_modules(section)
        if found is None:
            return None
        last = f"{found.path}.{found.layers[1]}.weight"
        width = shape_of(section.sources.headers, last, 4)[0]
        if width != hidden:
            raise ScaffoldError(
                f"{section.sources.headers.source}: {last!r} gives {width} channels, the decoder has {hidden}"
            )
        return {
            "input_projection": found.path.rpartition(".")[2],
            "input_layers": [name.rpartition(".")[2] for name in found.layers],
            "patch_merge": found.merge,
            "patch_hidden_size": found.inner,
        }

    @staticmethod
    def known_rules(section: Section) -> list[Rule]:
        """The convolutions' keys, which another module of the same kind may share but for its prefix."""
        found = patch_modules(section)
        top = section.before["architecture"]["input_projection"]
        layers = found.layers if found is not None else ()
        _, origin = section.known("detail.modules.input")
        return [
            Rule(f"{found.path}.{name}.", f"{top}.{name.rpartition('.')[2]}.", origin=origin)
            for name in layers
            if found
        ]

    @staticmethod
    def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Weights and biases of both convolutions."""
        name, (first, second) = architecture["input_projection"], architecture["input_layers"]
        inner, hidden, merge = (architecture[key] for key in ("patch_hidden_size", "hidden_size", "patch_merge"))
        side = latents["patch"] // merge
        return {
            f"{name}.{first}.weight": (inner, latents["channels"], side, side),
            f"{name}.{first}.bias": (inner,),
            f"{name}.{second}.weight": (hidden, inner, merge, merge),
            f"{name}.{second}.bias": (hidden,),
        }

    @staticmethod
    def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
        """Sizes of the convolutions and the base of the rotary angles between them."""
        return {name: architecture[name] for name in ("patch_merge", "patch_hidden_size", "patch_rope_theta")}


@dataclass(frozen=True)
class PatchModules:
    """The convolutions under the module that the source gives the sample to.

    Attributes:
        path: of that module, below the pipeline.
        layers: names of the convolutions below it, with the path between them and the module.
        channels: of a pixel.
        side: of a part, in pixels.
        merge: parts along one side of a token.
        inner: channels between the convolutions.
    """

    path: str
    layers: tuple[str, str]
    channels: int
    side: int
    merge: int
    inner: int


def patch_modules(section: Section) -> PatchModules | None:
    """Return the convolutions, None where the checkpoint has none there.

    Raises:
        ScaffoldError: they do not fit each other.
    """
    path, _ = section.known("detail.modules.input")
    headers = section.sources.headers
    names = [n.removesuffix(".weight") for n in headers.tensors if path and n.startswith(f"{path}.")]
    convolutions = [
        n for n in names if f"{n}.weight" in headers.tensors and len(headers.tensors[f"{n}.weight"].shape) == 4
    ]
    if len(convolutions) != 2:
        return None
    shapes = {name: shape_of(headers, f"{name}.weight", 4) for name in convolutions}
    first, second = sorted(convolutions, key=lambda name: shapes[name][0] != _between(list(shapes.values())))
    inner, channels, side, width = shapes[first]
    _, taken, merge, other = shapes[second]
    if taken != inner or side != width or merge != other:
        raise ScaffoldError(f"{headers.source}: {first} {shapes[first]} does not feed {second} {shapes[second]}")
    layers = (first.removeprefix(f"{path}."), second.removeprefix(f"{path}."))
    return PatchModules(path, layers, channels, side, merge, inner)


def _between(shapes: list[tuple[int, ...]]) -> int:
    """The channels that one convolution gives and the other takes."""
    (a_out, a_in, *_), (b_out, b_in, *_) = shapes
    return a_out if a_out == b_in else b_out if b_out == a_in else -1


class Bottleneck:
    """Two linear layers, one after the other, from a patch of pixels to the decoder's width."""

    ORDER = 20

    @staticmethod
    def find(section: Section, hidden: int) -> dict[str, Any] | None:
        """Return names and width of the only pair of layers in a module of their own that lead to that width."""
        tensors, token = section.sources.headers.tensors, token_size(section.before["latents"])
        pairs = []
        for name, tensor in tensors.items():
            module, _, first = name.removesuffix(".weight").rpartition(".")
            if not (name.endswith(".weight") and module and len(tensor.shape) == 2 and tensor.shape[1] == token):
                continue
            weights = [n for n in tensors if n.startswith(f"{module}.") and n.endswith(".weight")]
            others = [n for n in weights if tensors[n].shape == (hidden, tensor.shape[0]) and n != name]
            if len(weights) == 2 and others:
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

    @staticmethod
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

    @staticmethod
    def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
        """The width between the layers."""
        return {"bottleneck_size": architecture["bottleneck_size"]}


class Linear:
    """One linear layer from a latent token to the decoder's width."""

    ORDER = 90

    @staticmethod
    def find(section: Section, hidden: int) -> dict[str, Any] | None:
        """Find the layer by its shape, and by the preset's name where shapes leave a choice."""
        shape = (hidden, token_size(section.before["latents"]))
        hint = section.sources.preset.value(section.name, "input_projection")
        return {"input_projection": projection(section.sources.headers, shape, hint)}

    @staticmethod
    def parameters(architecture: Mapping[str, Any], latents: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Weight and bias."""
        name, hidden = architecture["input_projection"], architecture["hidden_size"]
        return {f"{name}.weight": (hidden, token_size(latents)), f"{name}.bias": (hidden,)}

    @staticmethod
    def fields(architecture: Mapping[str, Any]) -> dict[str, Any]:
        """No size of its own."""
        return {}
