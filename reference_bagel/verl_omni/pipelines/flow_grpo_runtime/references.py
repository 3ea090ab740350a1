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
"""The reference image of a model that edits: recorded in the rollout, placed before the text in training.

In front of an image that is made from another stand markers around that one's latents, which take the way of latents,
and the same markers around its features, which take that of text. Each part attends to itself and to what stands
before it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .composed_layers import attend
from .layouts import Layout, Tables

# Columns of the batch in which the rollout hands on what it made of a reference image.
REFERENCE_COLUMNS = ("reference_latents", "reference_positions", "reference_features", "reference_lengths")

Projected = tuple[Tensor, Tensor, Tensor]


class Reference(NamedTuple):
    """What the rollout made of the reference image of each sample.

    Attributes:
        latents: ``(B, R, patch_latent_dim)``.
        positions: ``(B, R)`` indices of the latents into the position table.
        features: ``(B, V, hidden)``, as the decoder is given them.
        latent_mask: ``(B, R)``, true at real latents; None where all images of the batch have one size.
        feature_mask: ``(B, V)``, the same of the features.
    """

    latents: Tensor
    positions: Tensor
    features: Tensor
    latent_mask: Tensor | None = None
    feature_mask: Tensor | None = None


@dataclass(frozen=True)
class ReferencePlan:
    """Where a reference image enters a pipeline.

    Attributes:
        pipeline: name of its class, for messages.
        decoder: path of the module that fills the cache.
        sequence, positions, cached: arguments of that module: a part of a sample, where it stands, and whether it is
            put into the cache.
        projection, table: names of the modules that latents, and their positions, are given to.
        markers, before: number of markers around a part, and how many of them stand before it.
        room: most latents, and most features, of an image. Columns are padded to as many, so that those of images of
            unlike sizes stack.
    """

    pipeline: str
    decoder: str
    sequence: str
    positions: str
    cached: str
    projection: str
    table: str
    markers: int
    before: int
    room: int


class ReferenceRecorder:
    """Keeps what a pipeline makes of a reference image, where it enters what is trained; each thread has a request.

    Before the loop the decoder fills its cache: with the image's latents, with its features, then with text. No encoder
    is trained, so what came out of them, random samples included, is all that training has to know.

    Args:
        pipeline: holds the modules, each under one name.
        plan: which they are.

    Raises:
        RuntimeError: the pipeline has not the modules.
    """

    def __init__(self, pipeline: torch.nn.Module, plan: ReferencePlan) -> None:
        self._plan = plan
        self._request = threading.local()
        modules = dict(pipeline.named_modules(remove_duplicate=False))
        decoder = modules.get(plan.decoder)
        projection, table = (
            next((module for path, module in modules.items() if path.rpartition(".")[2] == name), None)
            for name in (plan.projection, plan.table)
        )
        if decoder is None or projection is None or table is None:
            raise RuntimeError(f"{plan.pipeline} has not the modules that a reference image enters by")
        decoder.register_forward_pre_hook(self._of_decoder, with_kwargs=True)
        projection.register_forward_pre_hook(lambda _, args: self._keep("latents", args))
        table.register_forward_pre_hook(lambda _, args: self._keep("positions", args))

    def begin(self, active: bool) -> None:
        """Start a request, with or without an image."""
        request = self._request
        request.active, request.latents, request.positions, request.parts = active, [], [], []

    @property
    def _active(self) -> bool:
        return bool(getattr(self._request, "active", False))

    def _keep(self, name: str, args: tuple[Any, ...]) -> None:
        # The first call is that for the reference; those of the loop come behind.
        if self._active and not (kept := getattr(self._request, name)):
            kept.append(args[0].detach().clone())

    def _of_decoder(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        plan = self._plan
        part = kwargs.get(plan.sequence)
        if not self._active or part is None or not kwargs.get(plan.cached):
            return
        parts = self._request.parts
        if bool((kwargs[plan.positions] != len(parts)).any()):
            raise RuntimeError(f"{plan.pipeline} puts its reference image at other positions than training does")
        parts.append(part.detach().clone())

    def finish(self) -> dict[str, Tensor]:
        """What training needs, by column, with a leading batch dimension of 1, on the CPU; nothing without an image.

        Latents, positions and features stand at the beginning of as many rows as there is room for; the last column
        says how many latents and features they are.

        Raises:
            ValueError: there is no room for them.
            RuntimeError: the pipeline did something else with the image than training would.
        """
        active, plan, request = self._active, self._plan, self._request
        request.active = False
        if not active:
            return {}
        if [len(parts) for parts in (request.latents, request.positions, request.parts)] != [1, 1, 2]:
            raise RuntimeError(
                f"{plan.pipeline} filled its cache with {len(request.parts)} parts of the reference image, training"
                " knows two: latents and features"
            )
        latents, positions, features = request.latents[0], request.positions[0], request.parts[1]
        if len(request.parts[0]) != len(latents) + plan.markers or len(positions) != len(latents):
            raise RuntimeError(
                f"{plan.pipeline} made {len(latents)} latents of the reference image and {len(request.parts[0])} tokens"
            )
        features = features[plan.before : len(features) - (plan.markers - plan.before)]
        lengths = len(latents), len(features)
        if max(lengths) > plan.room:
            raise ValueError(
                f"the reference image has {lengths[0]} latents and {lengths[1]} features, and REFERENCE_ROOM of"
                f" common.py is {plan.room}: send a smaller image, or raise it"
            )
        kept = [part.new_zeros(plan.room, *part.shape[1:]) for part in (latents, positions, features)]
        for padded, part in zip(kept, (latents, positions, features), strict=True):
            padded[: len(part)] = part
        kept.append(torch.tensor(lengths))
        return {name: column[None].cpu() for name, column in zip(REFERENCE_COLUMNS, kept, strict=True)}


def reference_of(micro_batch: Any, latents: Tensor) -> Reference | None:
    """What the rollout made of the reference images; None where requests brought none.

    Args:
        micro_batch: may hold ``REFERENCE_COLUMNS``.
        latents: ``(B, …)`` trajectories; the result is on their device.

    Raises:
        KeyError: one of the columns is missing, the others are there.
        ValueError: they are not of these trajectories.
    """
    missing = [name for name in REFERENCE_COLUMNS if name not in micro_batch.keys()]
    if len(missing) == len(REFERENCE_COLUMNS):
        return None
    if missing:
        raise KeyError(f"the micro-batch has no column {missing[0]!r}, and others of {REFERENCE_COLUMNS}")
    columns = [micro_batch[name].to(latents.device) for name in REFERENCE_COLUMNS]
    image_latents, places, features, lengths = columns
    if any(len(column) != len(latents) for column in columns) or image_latents.shape[:2] != places.shape:
        shapes = [tuple(column.shape) for column in columns]
        raise ValueError(f"{REFERENCE_COLUMNS} are {shapes} for {len(latents)} trajectories")
    (latent_length, feature_length), least = lengths.amax(dim=0).tolist(), lengths.amin(dim=0).tolist()
    parts = image_latents[:, :latent_length], places[:, :latent_length], features[:, :feature_length]
    if [latent_length, feature_length] == least:
        return Reference(*parts)
    masks = (
        torch.arange(most, device=latents.device) < lengths[:, i : i + 1]
        for i, most in enumerate((latent_length, feature_length))
    )
    return Reference(*parts, *masks)


class ReferenceLayout(Layout):
    """Where the tokens of a batch stand that may begin with a reference image.

    All image tokens of a sample share one rotary position, as in :class:`TextLengthLayout`. The latents of the
    reference with their markers have one of their own, its features with theirs the next, then comes the text.

    Args:
        text_length, text_mask, device: as in :class:`Layout`.
        latent_length: number of latent tokens that are to be made.
        tables: rotary tables of positions ``(B, L)``.
        reference: None without an image.
        before, after: numbers of markers before and behind the latents.

    Attributes:
        reference_length: number R of latents of the reference; 0 without one.
        prefix_length: tokens of the context before the text.
        latent_mask, context_mask: true at real tokens of the reference's latents and of the context; None where images
            of the batch have one size.
    """

    def __init__(
        self,
        text_length: int,
        text_mask: Tensor | None,
        latent_length: int,
        tables: Tables,
        device: torch.device,
        reference: Reference | None,
        *,
        before: int = 0,
        after: int = 0,
    ) -> None:
        self.markers = markers = before + after
        self.reference_length = 0 if reference is None else reference.latents.shape[1]
        features = 0 if reference is None else reference.features.shape[1]
        self.prefix_length = 0 if reference is None else 2 * markers + features
        self.latent_mask: Tensor | None = None
        self.context_mask: Tensor | None = None
        behind = markers + self.reference_length + latent_length
        super().__init__(text_length, text_mask, behind, device, in_front=self.prefix_length)
        positions = F.pad(self._text() - self._first, (0, markers))
        if reference is not None:
            sizes = markers, markers + features
            places = [(-at - self._first).expand(-1, size) for at, size in zip((2, 1), sizes, strict=True)]
            latent_positions = places[0][:, :1].expand(-1, self.reference_length)
            positions = torch.cat((*places, positions.expand(len(self._first), -1)), dim=1)
            self.latent_rotary = tables(F.pad(latent_positions, (0, latent_length)))
            # Text sees the reference whole, and itself up to each token; its padding stands to the right of it.
            seen = self.prefix_length + self.reference_length
            every = torch.ones((1, text_length, seen + text_length), dtype=torch.bool, device=device)
            self.text_mask = every.tril(seen)
            if reference.latent_mask is not None and reference.feature_mask is not None:
                prefix = F.pad(reference.feature_mask, (markers + before, markers - before), value=True)
                self._hide_padding(reference.latent_mask, prefix, text_mask, latent_length)
        self.rotary = tables(positions)

    def _hide_padding(self, latents: Tensor, prefix: Tensor, text: Tensor | None, latent_length: int) -> None:
        """Let nothing see what pads the reference images of a batch, where they differ in size.

        Args:
            latents: ``(B, R)``, true at real latents of the reference.
            prefix: ``(B, prefix_length)``, true at markers and real features.
            text: ``(B, L)``, true at real tokens; None where no text is padded.
            latent_length: number of latent tokens that are to be made.
        """
        text = prefix.new_ones(len(prefix), self.text_length) if text is None or not self.text_length else text.bool()
        context = torch.cat((prefix, F.pad(text, (0, self.markers), value=True)), dim=1)
        self.latent_mask, self.context_mask = latents, context
        self.key_mask = torch.cat((context, F.pad(latents, (0, latent_length), value=True)), dim=1)
        if self.text_mask is not None:
            self.text_mask = self.text_mask & torch.cat((latents, context[:, : -self.markers]), dim=1)[:, None]


def attend_behind_reference(context: Projected, latents: Projected, layout: ReferenceLayout) -> tuple[Tensor, Tensor]:
    """Attention of a sample that begins with a reference image: each part sees itself and what stands before it.

    Args:
        context: queries, keys and values of markers, markers with features, text, markers.
        latents: those of the reference, then those of the image that is made.
        layout: where the parts begin.

    Returns:
        What context and latents gather, ``(B, L, heads * head_dim)`` each.
    """
    (q, k, v), (q_latents, k_latents, v_latents) = context, latents
    count, prefix, markers = layout.reference_length, layout.prefix_length, layout.markers
    text_end = prefix + layout.text_length

    def seen(end: int) -> tuple[Tensor, Tensor, Tensor | None]:
        keys, values = (torch.cat((x[:, :count], y[:, :end]), dim=1) for x, y in ((k_latents, k), (v_latents, v)))
        if layout.latent_mask is None or layout.context_mask is None:
            return keys, values, None
        return keys, values, torch.cat((layout.latent_mask, layout.context_mask[:, :end]), dim=1)

    reference = attend(torch.cat((q[:, :markers], q_latents[:, :count]), dim=1), *seen(markers))
    gathered = [reference[:, :markers], attend(q[:, markers:prefix], *seen(prefix))]
    if layout.text_length:
        gathered.append(attend(q[:, prefix:text_end], *seen(text_end)[:2], layout.text_mask))
    k, v = torch.cat((k, k_latents), dim=1), torch.cat((v, v_latents), dim=1)
    made = attend(torch.cat((q[:, text_end:], q_latents[:, count:]), dim=1), k, v, layout.key_mask)
    gathered.append(made[:, :markers])
    return torch.cat(gathered, dim=1), torch.cat((reference[:, markers:], made[:, markers:]), dim=1)
