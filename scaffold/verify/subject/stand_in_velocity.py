"""Training modules with a known velocity, for contracts on adapters rather than the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def velocity_of(sample: Tensor) -> Tensor:
    """A velocity field that mixes channels, so that an index error is detected."""
    return 0.3 * sample + 0.1 * sample.roll(1, dims=-1).sin()


class KnownVelocity(nn.Module):
    """Predicts `velocity_of` the latents it is given.

    Args:
        subject: gives configuration and latent shape.
        dtype: of the prediction, as under mixed precision.
    """

    def __init__(self, subject: Any, dtype: Any = None) -> None:
        super().__init__()
        for name, value in {**subject.attributes, "config": subject.config}.items():
            setattr(self, name, value)
        self._shape = subject.geometry.shape
        self._dtype = dtype
        # Adapters ask a module for its device and dtype through its parameters.
        self.anchor = nn.Parameter(torch.zeros(1))

    def latents(self, arguments: dict[str, Any]) -> Tensor:
        """The argument that has the latents' shape."""
        for value in arguments.values():
            if isinstance(value, Tensor) and value.is_floating_point() and value.shape[1:] == self._shape:
                return value
            # The calls of a ported denoiser hold the latents of the step, one for each sample.
            found = getattr(value, "_samples", None)
            if found and all(isinstance(row, Tensor) and row.shape[1:] == self._shape for row in found):
                # Of several branches a sample stands there once for each, and they come first.
                branches, rows = getattr(value, "branches", None), torch.cat(found)
                return rows if branches is None else rows.view(-1, branches, *self._shape).transpose(0, 1)
        raise LookupError(f"no argument of forward has the latents' shape (B, {self._shape})")

    def forward(self, **arguments: Any) -> tuple[Tensor]:
        """Return the known velocity as a 1-tuple."""
        velocity = velocity_of(self.latents(arguments))
        return (velocity if self._dtype is None else velocity.to(self._dtype),)


class TwoBranches(KnownVelocity):
    """Predicts one velocity with the prompt, another without, a third without a reference image, and counts its calls.

    Args:
        subject: as above.
        negative: the arguments of the branch without prompt.
    """

    def __init__(self, subject: Any, negative: dict[str, Any] | None) -> None:
        super().__init__(subject)
        self._negative = negative
        self.without = nn.Parameter(torch.zeros(1))  # as ``anchor``, in the branch without the prompt
        self.conditional: list[Tensor] = []
        self.unconditional: list[Tensor] = []
        self.image_free: list[Tensor] = []

    def forward(self, **arguments: Any) -> tuple[Tensor]:
        sample = self.latents(arguments)
        negative = self._negative
        if negative is not None and all(_same(arguments.get(name), value) for name, value in negative.items()):
            found = velocity_of(sample) + self.without
            if sample.ndim > 1 + len(self._shape):  # of several branches each is another
                found = torch.stack([row + 0.05 * i * row.cos() for i, row in enumerate(found)])
            self.unconditional.append(found)
            return (found,)
        if (negative or {}).get("reference") is not None and arguments.get("reference") is None:
            self.image_free.append(0.4 * velocity_of(sample) + 0.15 * sample.sin() + self.anchor)
            return (self.image_free[-1],)
        # A small scale makes the guided velocity shorter than this one, a large one longer: a renorm must tell them.
        self.conditional.append(0.5 * velocity_of(sample) + 0.1 * sample.cos() + self.anchor)
        return (self.conditional[-1],)


def _same(one: Any, other: Any) -> bool:
    """Whether one argument is the other, or some of its rows in an adapter that takes samples apart and trims them."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.ndim != other.ndim or any(part > whole for part, whole in zip(one.shape, other.shape, strict=True)):
            return False
        if one.ndim == 0 or one.shape == other.shape:
            return bool(torch.equal(one, other))
        begins = range(len(other) - len(one) + 1)
        trimmed = other
        for axis, size in enumerate(one.shape[1:], start=1):
            trimmed = trimmed.narrow(axis, 0, size)
        return any(torch.equal(one, trimmed[begin : begin + len(one)]) for begin in begins)
    return one is other
