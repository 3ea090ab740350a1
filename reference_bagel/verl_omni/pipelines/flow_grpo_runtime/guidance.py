# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Settings of guidance, under whatever name and type a request or a configuration gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


def resolve_settings(
    overrides: Mapping[str, Any], defaults: Mapping[str, Any], others: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """Fill in defaults and bring the values to one type, whether they come from JSON, Hydra or Python.

    Args:
        overrides: values by name; unknown names and None are ignored.
        defaults: value of each setting; its type is the setting's: text, a tuple of numbers, or else a number.
        others: other names of a setting, in the order in which they are tried.

    Raises:
        ValueError: a setting of several numbers has another number of values.
    """
    resolved: dict[str, Any] = {}
    for name, default in defaults.items():
        asked = (overrides.get(key) for key in (name, *(others or {}).get(name, ())))
        value = next((value for value in asked if value is not None), default)
        if isinstance(default, tuple):
            if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != len(default):
                raise ValueError(f"{name} must be {len(default)} numbers, got {value!r}")
            resolved[name] = tuple(float(bound) for bound in value)
        else:
            resolved[name] = str(value) if isinstance(default, str) else float(value)
    return resolved


def other_names(common: Any) -> Mapping[str, tuple[str, ...]]:
    """Other names of each guidance setting, in the order in which they are tried."""
    names: Mapping[str, tuple[str, ...]] = getattr(common, "CFG_OTHER_NAMES", {})
    return names


def setting_names(defaults: Mapping[str, Any], others: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every name that a setting may have."""
    return tuple(dict.fromkeys([*defaults, *(name for names in others.values() for name in names)]))


def settings_of(
    defaults: Mapping[str, Any],
    others: Mapping[str, Sequence[str]] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """What fills in these defaults; see :func:`resolve_settings`.

    It raises ValueError, too, where a setting of ``choices`` is none of them.
    """

    def resolve(overrides: Mapping[str, Any]) -> dict[str, Any]:
        values = resolve_settings(overrides, defaults, others)
        for name, known in (choices or {}).items():
            if values[name] not in known:
                raise ValueError(f"{name} must be one of {known}, got {values[name]!r}")
        return values

    return resolve


def __getattr__(name: str) -> Any:
    """Refuse packages of before the rollout carried what it did; their own runtime runs them.

    Raises:
        ImportError: a package asks for what makes a formula.
        AttributeError: there is no such name.
    """
    if name in ("guide_of", "velocity_of"):
        raise ImportError(
            "this package has formulas of guidance, which no runtime from version 12 on reads: convert it with"
            " `omni-scaffold update PACKAGE`, or bring back the flow_grpo_runtime that it was written with"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True)
class PackedGuidance:
    """Classifier-free guidance of a pipeline that packs its branches, for each sample by itself.

    Text guidance is ``u + s * (c - u)``. Image guidance follows, with the branch that drops the input image. Without
    such an image that branch is the conditional one and needs no third forward.

    Attributes:
        text_scale: name of the setting ``s``.
        image_scale: of the scale of image guidance; empty where there is none.
        interval: of the pair of levels between which guidance is on; empty where it is always on.
        from_lowest: the interval includes its lower end.
        of_time: the interval is compared with ``1 - sigma``, in float32 as in the rollout.
        renorm_type, renorm_min: of the kind of renorm and its smallest factor; empty where there is none.
        renorms: kinds that the pipeline knows: ``text_channel`` before image guidance, ``global`` and ``channel``
            behind it.
        epsilon: added to the norm.
    """

    text_scale: str
    image_scale: str = ""
    interval: str = ""
    from_lowest: bool = False
    of_time: bool = False
    renorm_type: str = ""
    renorm_min: str = ""
    renorms: tuple[str, ...] = ()
    epsilon: float = 0.0

    def combine(
        self,
        conditional: torch.Tensor,
        unconditional: torch.Tensor,
        sigma: torch.Tensor,
        guidance: Mapping[str, Any],
        image_free: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Combine the branches of one step.

        Args:
            conditional: ``(B, N, C)`` float32 velocity with the prompt.
            unconditional: ``(B, N, C)`` float32 velocity without it.
            sigma: ``(B,)`` noise levels; samples of a micro-batch may stand at different steps.
            guidance: settings by name.
            image_free: ``(B, N, C)`` float32 velocity with the prompt and without the image; None where there is no
                image.

        Returns:
            ``(B, N, C)`` float32; samples outside the interval keep the conditional velocity.
        """
        guided: torch.Tensor = unconditional + guidance[self.text_scale] * (conditional - unconditional)
        guided = self._renormed("text_channel", guided, conditional, guidance)
        if self.image_scale and guidance[self.image_scale] > 1.0:
            start = conditional if image_free is None else image_free
            guided = start + guidance[self.image_scale] * (guided - start)
        for kind in ("global", "channel"):
            guided = self._renormed(kind, guided, conditional, guidance)
        if not self.interval:
            return guided
        low, high = guidance[self.interval]
        level = 1 - sigma if self.of_time else sigma.double()  # the rollout compares Python floats
        active = ((level >= low) if self.from_lowest else (level > low)) & (level <= high)
        kept: torch.Tensor = torch.where(active.view(-1, 1, 1), guided, conditional)
        return kept

    def _renormed(
        self, kind: str, guided: torch.Tensor, conditional: torch.Tensor, guidance: Mapping[str, Any]
    ) -> torch.Tensor:
        """Scale ``guided`` to the norm of ``conditional``, by at most 1, where ``kind`` is the renorm that is set."""
        if kind not in self.renorms or guidance[self.renorm_type] != kind:
            return guided
        dims = (1, 2) if kind == "global" else (-1,)
        target, norm = (torch.linalg.vector_norm(x, dim=dims, keepdim=True) for x in (conditional, guided))
        least = guidance[self.renorm_min] if self.renorm_min else 0.0
        scaled: torch.Tensor = guided * (target / (norm + self.epsilon)).clamp(min=least, max=1.0)
        return scaled
