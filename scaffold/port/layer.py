"""What a kind of layer is given, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class UnsupportedError(Exception):
    """The layer is used in a way that has no counterpart; the text says which."""


@dataclass(frozen=True)
class Built:
    """What stands for one layer.

    Attributes:
        parts: expressions that make it; several where a fused layer is taken apart, by the names of the parts.
        pairs: whether upstream's layer returns a pair of output and bias.
        reads: what an attribute of upstream's layer is there, as an expression of the constructor.
        renames: attributes that have another name.
        fixed: attributes and calls whose value is known, by their text behind the layer.
        inside: fused layers of upstream's inside of it, and the names of their parts.
    """

    parts: tuple[tuple[str | None, str], ...]
    pairs: bool = False
    reads: Mapping[str, str] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def fused(self) -> bool:
        """Whether it is several layers."""
        return len(self.parts) > 1


class Site:
    """Where a layer is made; a scan of a class asks for nothing yet.

    Args:
        parts: the checkpoint's names of the parts of a fused layer; None where it holds the fused one.
    """

    def __init__(self, parts: tuple[str, ...] | None) -> None:
        self._parts = parts

    def parts(self, count: int) -> tuple[str, ...] | None:
        """Return the checkpoint's names of so many parts; None where it has others, or the fused layer."""
        return self._parts if self._parts is not None and len(self._parts) == count else None

    def support(self, module: str, name: str) -> str:
        """Ask for a class or function of ``scaffold/port/support``; returns its name in the port."""
        return name


@dataclass(frozen=True)
class Arguments:
    """Arguments of a call as source text."""

    positional: tuple[str, ...]
    keywords: Mapping[str, str]
    name: str

    def bind(self, parameters: Sequence[str]) -> dict[str, str]:
        """Return text by parameter.

        Raises:
            UnsupportedError: more arguments than parameters, or other keywords.
        """
        if len(self.positional) > len(parameters):
            raise UnsupportedError("more arguments than its parameters")
        bound = dict(zip(parameters, self.positional, strict=False))
        strange = sorted(set(self.keywords) - set(parameters))
        if strange:
            raise UnsupportedError(f"argument {strange[0]}")
        return {**bound, **self.keywords}
