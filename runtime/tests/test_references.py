"""What a pipeline makes of a reference image: recorded where it enters, and read back from the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flow_grpo_runtime.references import REFERENCE_COLUMNS, ReferencePlan, ReferenceRecorder, reference_of

PLAN = ReferencePlan(
    pipeline="Toy",
    decoder="model.decoder",
    sequence="sequence",
    positions="positions",
    cached="cached",
    projection="projection",
    table="table",
    markers=3,
    before=1,
    room=6,
)


class Decoder(nn.Module):
    """What the pipeline calls for each part of its cache."""

    def forward(self, **kwargs: Any) -> None:
        pass


class Toy(nn.Module):
    """A pipeline with the modules that a reference image enters by."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.decoder = Decoder()
        self.projection, self.table = nn.Linear(3, 8), nn.Embedding(64, 8)

    def part(self, length: int, place: int, cached: bool = True) -> torch.Tensor:
        """Fill the cache with one part; returns it."""
        sequence = torch.randn(length, 8)
        self.model.decoder(sequence=sequence, positions=torch.full((length,), place), cached=cached)
        return sequence

    def edit(self, places: tuple[int, int] = (0, 1), latent_count: int = 4) -> tuple[torch.Tensor, ...]:
        """The calls that a request with an image makes; returns latents, positions and the part of the features."""
        latents, positions = torch.randn(latent_count, 3), torch.arange(latent_count) * 2
        self.table(positions)
        self.projection(latents)
        self.part(latent_count + 3, places[0])
        features = self.part(7, places[1])
        self.model.decoder(sequence=None, cached=True)  # the text's
        self.table(torch.arange(9))  # the loop's
        self.projection(torch.randn(9, 3))
        self.part(11, 5, cached=False)
        return latents, positions, features


def test_what_the_image_became_is_kept_and_nothing_of_a_request_without_one() -> None:
    toy = Toy()
    recorder = ReferenceRecorder(toy, PLAN)
    for _ in range(2):
        recorder.begin(True)
        latents, positions, features = toy.edit()
        kept = recorder.finish()
        assert tuple(kept) == REFERENCE_COLUMNS
        *columns, lengths = kept.values()
        for found, wanted in zip(columns, (latents, positions, features[1:-2]), strict=True):
            assert found.shape[:2] == (1, 6)
            assert torch.equal(found[0, : len(wanted)], wanted)
            assert not found[0, len(wanted) :].any()
        assert lengths.tolist() == [[4, 4]]
    recorder.begin(False)
    toy.edit()
    assert recorder.finish() == {}


def test_what_training_would_not_do_is_refused() -> None:
    toy = Toy()
    recorder = ReferenceRecorder(toy, PLAN)
    recorder.begin(True)
    with pytest.raises(RuntimeError, match="at other positions"):
        toy.edit(places=(0, 4))
    recorder.begin(True)
    with pytest.raises(RuntimeError, match="with 0 parts"):
        recorder.finish()
    recorder.begin(True)
    toy.edit(latent_count=7)
    with pytest.raises(ValueError, match="REFERENCE_ROOM of common.py is 6: send a smaller image"):
        recorder.finish()
    with pytest.raises(RuntimeError, match="has not the modules"):
        ReferenceRecorder(nn.Linear(1, 1), PLAN)


def test_columns_come_back_cut_to_the_longest_with_masks_where_they_differ() -> None:
    toy, rows = Toy(), []
    recorder = ReferenceRecorder(toy, PLAN)
    for count in (4, 2):
        recorder.begin(True)
        toy.edit(latent_count=count)
        rows.append(recorder.finish())
    batch = {name: torch.cat([row[name] for row in rows]) for name in REFERENCE_COLUMNS}
    found = reference_of(batch, torch.zeros(2, 3))
    assert found is not None
    assert (found.latents.shape, found.features.shape) == ((2, 4, 3), (2, 4, 8))
    assert found.latent_mask is not None
    assert found.latent_mask.tolist() == [[True] * 4, [True, True, False, False]]
    alone = reference_of(rows[0], torch.zeros(1, 3))
    assert alone is not None
    assert alone.latent_mask is None
    assert reference_of({}, torch.zeros(1, 3)) is None


def test_half_of_the_columns_or_those_of_others_are_refused() -> None:
    columns = dict(
        zip(REFERENCE_COLUMNS, (torch.zeros(1, 2, 3), torch.zeros(1, 2), torch.zeros(1, 1, 8), 0), strict=True)
    )
    columns["reference_lengths"] = torch.tensor([[2, 1]])
    with pytest.raises(KeyError, match="reference_latents"):
        reference_of({name: columns[name] for name in REFERENCE_COLUMNS[1:]}, torch.zeros(1, 3))
    with pytest.raises(ValueError, match="for 2 trajectories"):
        reference_of(columns, torch.zeros(2, 3))
