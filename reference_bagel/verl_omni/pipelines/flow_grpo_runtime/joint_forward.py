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
"""Velocities of several requests at once, by the training module over the engine's weights."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .encoded import IDS, MASK
from .engine_views import EngineViews
from .passes import Passes

# Requests whose prompts have one length are computed without a mask, where there are so many of each on average.
ALIKE = 4
# How far a guided velocity may lie from that of the engine's own layers, relative to it: rounding, and not weights.
NEAR = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.25}


@dataclass
class Row:
    """One request at one step.

    Attributes:
        latents: ``(1, N, C)`` float32, in training's scale.
        level: noise level.
        columns: what training is given of the request, each with a leading dimension of 1.
        guidance: its settings, by name.
        size: height and width in pixels.
        engine: the guided velocity ``(1, N, C)`` of the engine's own layers to compare with; None where they did not
            run.
    """

    latents: Tensor
    level: float
    columns: Mapping[str, Tensor]
    guidance: Mapping[str, Any]
    size: tuple[int, int]
    engine: Tensor | None = None

    @property
    def prompt_length(self) -> int:
        """Number of tokens of the prompt."""
        return int(self.columns[MASK].sum())

    def kind(self, by_length: bool) -> tuple[Any, ...]:
        """What requests have in common that are computed in one pass."""
        others = sorted((name, tuple(column.shape)) for name, column in self.columns.items() if name not in (IDS, MASK))
        length = self.prompt_length if by_length else None
        return repr(sorted(self.guidance.items())), self.size, tuple(self.latents.shape), repr(others), length


class JointForward:
    """Computes as training does, which keeps text and latents apart from the first layer to the last.

    Args:
        training: ``module.Class`` of the package's training adapter.
        folder: of the checkpoint.
        views: of the engine's weights.
        dtype: of the engine's weights.
        device: where they are.
        most: most images in one pass; None for all that fit.
    """

    def __init__(
        self,
        training: str,
        folder: str,
        views: EngineViews,
        dtype: torch.dtype,
        device: torch.device,
        most: int | None = None,
    ) -> None:
        path, _, name = training.rpartition(".")
        self.training: Any = getattr(importlib.import_module(path), name)
        self.module: Any = self.training.module_class.over(folder, dtype, device)
        self.views, self.dtype, self.passes = views, dtype, Passes(most)
        self.compared = False  # with the engine's own layers, since weights came last
        self.apart = 0.0  # how far it was from them then, relative

    def bind(self) -> None:
        """Take the engine's weights as they are now.

        Raises:
            LookupError: the engine does not hold them in a form that training could use.
        """
        self.views.bind(self.module)

    def velocities(self, rows: Sequence[Row]) -> list[Tensor]:
        """Guided velocities ``(1, N, C)`` float32, d x / d sigma, in order.

        Raises:
            RuntimeError: they are not those of the engine's own layers.
        """
        by_length = len({row.prompt_length for row in rows}) * ALIKE <= len(rows)
        alike: dict[Any, list[int]] = {}
        for index, row in enumerate(rows):
            alike.setdefault(row.kind(by_length), []).append(index)
        results: list[Tensor | None] = [None] * len(rows)
        for members in alike.values():
            made = self.passes.run(members, lambda part: torch.split(self._pass([rows[i] for i in part]), 1))
            for index, velocity in zip(members, made, strict=True):
                results[index] = velocity
        velocities = [velocity for velocity in results if velocity is not None]
        for row, velocity in zip(rows, velocities, strict=True):
            if row.engine is not None:
                self._compare(velocity, row.engine)
        return velocities

    def _pass(self, rows: Sequence[Row]) -> Tensor:
        latents, device = torch.cat([row.latents for row in rows]), rows[0].latents.device
        levels = torch.tensor([row.level for row in rows], device=device)
        height, width = rows[0].size
        asked = SimpleNamespace(height=height, width=width, **rows[0].guidance)
        inputs, negative = self.training.prepare_model_inputs(
            module=self.module,
            model_config=SimpleNamespace(pipeline=asked),
            latents=latents[:, None],
            timesteps=levels[:, None],
            prompt_embeds=None,
            prompt_embeds_mask=None,
            negative_prompt_embeds=None,
            negative_prompt_embeds_mask=None,
            micro_batch=_collated(rows),
            step=0,
        )
        with torch.autocast(device.type, enabled=False):
            velocity: Tensor = self.training.guided_velocity(
                self.module, SimpleNamespace(pipeline=asked), inputs, negative, levels
            )
        return velocity

    def _compare(self, velocity: Tensor, engine: Tensor) -> None:
        self.compared = True
        self.apart = off = float((velocity - engine).norm() / engine.norm().clamp(min=1e-12))
        if not off <= NEAR.get(self.dtype, 0.25):
            raise RuntimeError(
                f"velocities of requests in a batch are {off:.2g} from those of the engine's own layers: set"
                " rollout.max_num_seqs to 1, which makes images one by one, and report this"
            )


def _collated(rows: Sequence[Row]) -> dict[str, Tensor]:
    """Columns of a batch; prompts are padded to the longest."""
    longest = max(row.prompt_length for row in rows)

    def prompts(name: str) -> Tensor:
        columns = [row.columns[name][:, :longest] for row in rows]
        return torch.cat([F.pad(column, (0, longest - column.shape[1])) for column in columns])

    others = {name for row in rows for name in row.columns} - {IDS, MASK}
    columns = {name: torch.cat([row.columns[name] for row in rows]) for name in others}
    return {**columns, IDS: prompts(IDS), MASK: prompts(MASK)}
