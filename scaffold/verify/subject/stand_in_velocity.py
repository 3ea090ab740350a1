"""Training modules with a known velocity, for contracts on adapters rather than the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def velocity_of(sample: Tensor) -> Tensor:
    """A velocity field that mixes channels, so that an index error is detected."""
    return 0.3 * sample + 0.1 * sample.roll(1, dims=-1).sin()


class _KnownTape:
    """A tape that takes one prediction, and makes that of it."""

    places = ((0, 0),)

    def velocity(self, rows: dict[tuple[int, int], Tensor], latents: Tensor) -> Tensor:
        """The prediction ``(1, …)`` itself, float32."""
        return rows[0, 0].float()


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
        # Its own from the start: an adapter that teaches modules to take recorded calls would have it make them, with
        # latents in lists or packed, and with the tape's sign.
        vars(self)["forward"] = self.forward

    def latents(self, arguments: dict[str, Any]) -> Tensor:
        """The argument that has the latents' shape."""
        for value in arguments.values():
            if isinstance(value, Tensor) and value.is_floating_point() and value.shape[1:] == self._shape:
                return value
            # The calls of a ported denoiser hold the latents of the step, one for each sample.
            if (tapes := getattr(value, "_tapes", None)) is not None:
                # What the pipeline makes of predictions is not asked for: the velocity itself is known. The tapes are
                # replaced and not the method, which whoever calls this module may hold already.
                value._tapes = [(_KnownTape(), row) for _, row in tapes]
                return torch.cat([row for _, row in tapes])
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
        positive: those of the branch with it. What both have alike tells nothing.
    """

    def __init__(self, subject: Any, negative: dict[str, Any] | None, positive: dict[str, Any] | None = None) -> None:
        super().__init__(subject)
        positive = positive or {}
        self._positive, self._negative = positive, negative
        self._telling = [n for n in {**positive, **(negative or {})} if not equal(positive.get(n), self._without(n))]
        self.without = nn.Parameter(torch.zeros(1))  # as ``anchor``, in the branch without the prompt
        self.conditional: list[Tensor] = []
        self.unconditional: list[Tensor] = []
        self.image_free: list[Tensor] = []
        self.given: list[dict[str, Any]] = []  # arguments of the calls without the prompt

    def forward(self, **arguments: Any) -> tuple[Tensor]:
        sample = self.latents(arguments)
        if (halves := self._halves(arguments, len(sample))) is not None:
            return (torch.cat([self._predicted(half, self.latents(half)) for half in halves]),)
        return (self._predicted(arguments, sample),)

    def _predicted(self, arguments: dict[str, Any], sample: Tensor) -> Tensor:
        if self._is_without(arguments):
            found = velocity_of(sample) + self.without
            self.unconditional.append(found)
            self.given.append(arguments)
            return found
        if self._without("reference") is not None and arguments.get("reference") is None:
            self.image_free.append(0.4 * velocity_of(sample) + 0.15 * sample.sin() + self.anchor)
            return self.image_free[-1]
        # A small scale makes the guided velocity shorter than this one, a large one longer: a renorm must tell them.
        self.conditional.append(0.5 * velocity_of(sample) + 0.1 * sample.cos() + self.anchor)
        return self.conditional[-1]

    def _without(self, name: str) -> Any:
        return (self._negative or {}).get(name)

    def _halves(self, arguments: dict[str, Any], rows: int) -> list[dict[str, Any]] | None:
        """Both branches of a call that joins them along the batch, as many of diffusers' pipelines do."""
        known = next((v for v in self._positive.values() if isinstance(v, Tensor) and v.shape[1:] == self._shape), None)
        if known is None or rows != 2 * len(known):
            return None
        joined = {n for n, v in arguments.items() if isinstance(v, Tensor | list | tuple) and _rows(v) == rows}
        ways = (slice(0, rows // 2), slice(rows // 2, rows))
        return [{n: v[way] if n in joined else v for n, v in arguments.items()} for way in ways]

    def _is_without(self, arguments: dict[str, Any]) -> bool:
        """Whether a call is the one without the prompt: by what tells the branches apart, arguments left out included.

        Where that branch is given values of its own, one of them is enough; cfg-branches looks at the others.
        """
        if self._negative is None or not self._telling:
            return self._negative is not None
        if self._without("reference") is not None and arguments.get("reference") is None:
            return False
        given = [n for n in self._telling if self._without(n) is not None]
        if not given:
            return all(arguments.get(name) is None for name in self._telling)
        seen = [n for n in given if arguments.get(n) is not None]  # an adapter may keep one for itself
        like = {n: (_same(arguments[n], self._without(n)), _same(arguments[n], self._positive.get(n))) for n in seen}
        if any(one != other for one, other in like.values()):
            return any(without and not positive for without, positive in like.values())
        return bool(like) and all(without for without, _ in like.values())


def _rows(value: Any) -> int:
    return len(value) if not isinstance(value, Tensor) or value.ndim else 0


def equal(one: Any, other: Any) -> bool:
    """Whether two arguments are alike, whatever they are made of."""
    if one is other:
        return True
    ones, others = tree_leaves(one), tree_leaves(other)
    if type(one) is not type(other) or len(ones) != len(others):
        return False
    if (
        len(ones) == 1
        and ones[0] is one
        and not isinstance(one, Tensor | int | float | str | bytes | torch.dtype | torch.device)
    ):
        return False  # an object that may compare itself in its own way
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else type(a) is type(b) and a == b
        for a, b in zip(ones, others, strict=True)
    )


def _same(one: Any, other: Any) -> bool:
    """Whether one argument is the other, or some of its rows in an adapter that takes samples apart and trims them."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        begins = range(len(other) - len(one) + 1)
        return bool(one) and any(equal(list(one), list(other[begin : begin + len(one)])) for begin in begins)
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
    return equal(one, other)
