"""What the engine's loading code works on: weights by name, parameters and modules by place, and what is not known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scaffold.source.values import Evidence, PlacedError

if TYPE_CHECKING:
    from scaffold.remap.engine.tree import EngineModule


class LoadingError(PlacedError):
    """The engine would raise while it loads; the message says why, without a final full stop."""


@dataclass(frozen=True)
class Weight:
    """A tensor on its way into the engine.

    Attributes:
        name: the name it set out under.
        shape: its shape, None once an operation has changed it.
        pieces: what was taken of it, in order; empty for the whole.
        merged: names of other tensors that were put together with it.
    """

    name: str
    shape: tuple[int, ...] | None = None
    pieces: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()

    def part(self, piece: str) -> Weight:
        """Return what an operation makes of the weight."""
        return Weight(self.name, None, (*self.pieces, piece), self.merged)


@dataclass(frozen=True)
class Slot:
    """A parameter of the engine; ``place`` is its first name below the pipeline.

    ``sharded`` says whether the layer gives it a ``weight_loader``; None where that is not known.
    """

    place: str
    sharded: bool | None = None


@dataclass(frozen=True)
class SlotShape:
    """The shape of a parameter of the engine, which no text gives."""

    slot: Slot


@dataclass(frozen=True)
class SlotLoader:
    """The ``weight_loader`` of a parameter, or the default one."""

    slot: Slot | None


@dataclass(eq=False)
class Module:
    """A module of the engine under execution."""

    node: EngineModule


@dataclass(eq=False)
class Symbol:
    """A value of the engine's construction that has no plain form here."""

    value: Any


@dataclass(eq=False)
class Loader:
    """vLLM's ``AutoWeightsLoader`` of a module."""

    module: Module
    skip_prefixes: tuple[str, ...] = ()
    skip_substrs: tuple[str, ...] = ()
    ignore_prefixes: tuple[str, ...] = ()
    ignore_suffixes: tuple[str, ...] = ()


@dataclass(eq=False)
class Mapper:
    """vLLM's ``WeightsMapper``: tables of substrings, prefixes and suffixes; None as a target drops the name."""

    substr: dict[str, str | None] = field(default_factory=dict)
    prefix: dict[str, str | None] = field(default_factory=dict)
    suffix: dict[str, str | None] = field(default_factory=dict)

    def rename(self, name: str) -> str | None:
        """Return the new name, or None where the tables drop it."""
        for old, new in self.substr.items():
            if old in name:
                if new is None:
                    return None
                name = name.replace(old, new, 1)
        for old, new in self.prefix.items():
            if name.startswith(old):
                if new is None:
                    return None
                name = name.replace(old, new, 1)
        for old, new in self.suffix.items():
            if name.endswith(old):
                if new is None:
                    return None
                name = new.join(name.rsplit(old, 1))
        return name


@dataclass(frozen=True)
class Landing:
    """A weight, or a piece of it, that reached a parameter: its place, the shard, and the line that put it there."""

    place: str
    shard: str
    at: Evidence | None = field(default=None, compare=False)
