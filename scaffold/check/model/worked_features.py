"""Cosine and sine features of a noise level, worked out for one level and compared with those that are recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scaffold.check.model.arrays import Array
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.worked_out import NotPlainError, RefusedError, Worked

_LEVEL = 0.5  # the same for a time that runs the other way, 1 - sigma
_NEAR = 1e-5


def worked_features(function: FunctionModel) -> list[float] | None:
    """Return what a function makes of one noise level, where that is one row of numbers; None where it is not plain."""
    if len(function.required) != 1:
        return None
    try:
        made = Worked().call(function, Array((1,), [_LEVEL]))
    except (NotPlainError, RefusedError):
        return None
    whole = isinstance(made, Array) and made.values and all(isinstance(value, (int, float)) for value in made.values)
    return list(made.values) if isinstance(made, Array) and whole and len(made.values) % 2 == 0 else None


def other_frequency(features: Sequence[float], order: Sequence[str], period: float, scale: float) -> str | None:
    """Return where the frequencies of features are others than ``period ** (-i / n)`` for i from 0 to n - 1.

    Args:
        features: of `worked_features`.
        order: which half holds the cosines: ``["cos", "sin"]`` or the reverse.
        period: the longest period over 2 pi.
        scale: what the noise level is multiplied with, here or by the caller.

    Returns:
        What is wrong, None where the features are right or are laid out in another way altogether.
    """
    count = len(features) // 2
    pairs = list(zip(features[:count], features[count:], strict=True))
    waves = pairs if order[0] == "cos" else [(cosine, sine) for sine, cosine in pairs]
    if count < 2 or any(abs(c * c + s * s - 1) > _NEAR for c, s in waves):
        return None
    wrong: list[int] = []
    for factor in {1.0, scale}:
        angles = [factor * _LEVEL * period ** (-at / count) for at in range(count)]
        unlike = [at for at, (angle, wave) in enumerate(zip(angles, waves, strict=True)) if not _same(angle, wave)]
        if not unlike:
            return None
        wrong = min(wrong or unlike, unlike, key=len)
    return f"{len(wrong)} of {count} frequencies are not those of the model's features, {period:g} ** (-i / {count})"


def _same(angle: float, wave: tuple[float, float]) -> bool:
    return abs(math.cos(angle) - wave[0]) < _NEAR and abs(math.sin(angle) - wave[1]) < _NEAR
