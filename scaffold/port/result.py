"""What a port is: text, and everything a person must know about it, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """Code of the pipeline's that was not carried over; the module raises there."""

    what: str
    file: str
    line: int
    version: str

    @property
    def message(self) -> str:
        """The text of the NotImplementedError that stands in its place."""
        return f"{self.what}: port {self.file}:{self.line} of vllm-omni {self.version}"


@dataclass(frozen=True)
class Fused:
    """A fused layer of vllm-omni's and the plain ones that stand for it, in the order of its rows."""

    owner: str
    name: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Assumption:
    """Something that the engine decides at run time and the port takes as decided."""

    what: str
    file: str
    line: int


@dataclass(frozen=True)
class Port:
    """A denoiser as one module of plain torch.

    Attributes:
        source: text of the module, formatted; it imports nothing of vllm or vllm_omni.
        entry: name of the denoiser's class in it.
        classes: all classes in it that come from vllm-omni, in the order of the text.
        layer_classes: those that the denoiser holds in lists, for FSDP to wrap.
        gaps: what raises NotImplementedError, by place.
        derived_from: files of vllm-omni's that the text comes from.
        fused: which plain layers stand for which fused ones.
        assumptions: answers of the engine's run time that were taken as given on one device.
        parameters: names of the constructor's parameters, in order.
        needs_config: whether the constructor takes an object of the engine's instead of plain values.
    """

    source: str
    entry: str
    classes: tuple[str, ...]
    layer_classes: tuple[str, ...]
    gaps: tuple[Gap, ...]
    derived_from: tuple[str, ...]
    fused: tuple[Fused, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    parameters: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
