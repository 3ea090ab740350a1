"""Calls of the denoiser: samples that share a call, and those that do not."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from planned_calls import GUIDANCE, Planned, guide

from flow_grpo_runtime.joined_calls import JoinedCalls
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.passes import Passes
from flow_grpo_runtime.replay import each_alone


class Counting(torch.nn.Module):
    """Takes a batch: latents, a time and a text for each sample, and a table for all; the mask decides what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(2.0))
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x: torch.Tensor, time: torch.Tensor, *, text: Any, mask: torch.Tensor, table: Any) -> Any:
        assert len(x) == len(time) == len(text["embeds"]) == len(mask)
        self.seen.append((len(x), *text["embeds"].shape))
        read = (text["embeds"] * mask[..., None] + table[0][: mask.shape[1]] * mask[..., None]).sum(dim=(1, 2))
        return (self.weight * x * time.view(-1, 1, 1) + (read / mask.sum(dim=1)).view(-1, 1, 1),)


TABLE = torch.arange(50.0).view(10, 5)


def sampled(
    calls: Planned, seed: int, length: int, *, doubled: bool = False, table: torch.Tensor = TABLE
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """One step of a pipeline with guidance: the recorded calls, the latents and both predictions."""
    generator = torch.Generator().manual_seed(seed)
    recorder, denoiser = calls.CallRecorder(), Counting()
    latents, texts = torch.randn(1, 4, 6, generator=generator), torch.randn(2, length, 5, generator=generator)
    time, mask = torch.tensor([0.1 * seed]), torch.ones(2, length, dtype=torch.int64)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        if doubled:
            both = torch.cat([latents, latents]), time.repeat(2)
            made = list(denoiser(*both, text={"embeds": texts}, mask=mask, table=[table])[0].split(1))
        else:
            made = [
                denoiser(latents, time, text={"embeds": text[None]}, mask=mask[:1], table=[table, None])[0]
                for text in texts
            ]
    recorder.step(latents, guide(*made), keep=True)
    return recorder.finish(GUIDANCE), latents, made


def stacked(calls: Planned, samples: list[Any]) -> tuple[torch.Tensor, list[tuple[int, ...]], torch.Tensor]:
    """What training computes of a batch, the calls that it makes and what the rollout stepped with."""
    recorded, latents = calls.read_calls([sample[0] for sample in samples]), torch.cat([s[1] for s in samples])
    denoiser = Counting()
    found = calls.DenoiserCalls(recorded, latents, 0)
    with torch.no_grad():
        made = found.velocity(found.evaluate(denoiser, torch.float32))
    return made, denoiser.seen, torch.cat([guide(*sample[2]) for sample in samples])


@pytest.mark.parametrize("doubled", [False, True])
def test_samples_of_one_shape_share_a_call_and_a_doubled_call_is_split(calls: Planned, doubled: bool) -> None:
    made, seen, expected = stacked(calls, [sampled(calls, i, 7, doubled=doubled) for i in range(1, 4)])
    assert torch.allclose(made, expected, atol=1e-6)
    assert seen == [(6, 6, 7, 5)]


def test_a_doubled_call_is_split_where_samples_do_not_share_one() -> None:
    alone = Planned(CallPlan())
    made, seen, expected = stacked(alone, [sampled(alone, i, 7, doubled=True) for i in range(1, 4)])
    assert torch.allclose(made, expected, atol=1e-6)
    assert seen == [(1, 1, 7, 5)] * 6


def test_texts_of_other_lengths_are_padded_only_where_the_denoiser_takes_it(
    calls: Planned,
) -> None:
    samples = [sampled(calls, i, length) for i, length in ((1, 7), (2, 4), (3, 7), (4, 9))]
    made, seen, expected = stacked(calls, samples)
    assert torch.allclose(made, expected, atol=1e-6)
    assert sorted(seen) == [(2, 2, 4, 5), (2, 2, 9, 5), (4, 4, 7, 5)]
    padding = Planned(CallPlan(stacked=True, padded=True))
    made, seen, expected = stacked(padding, samples)
    assert torch.allclose(made, expected, atol=1e-6)
    assert seen == [(8, 8, 9, 5)]


def test_another_table_is_another_call(calls: Planned) -> None:
    made, seen, expected = stacked(calls, [sampled(calls, 1, 7), sampled(calls, 2, 7, table=TABLE + 1)])
    assert torch.allclose(made, expected, atol=1e-6)
    assert seen == [(2, 2, 7, 5)] * 2


def test_a_table_that_training_computes_itself_is_not_carried(calls: Planned) -> None:
    """What stands in the place of a table of the denoiser's is its name; another value travels as it is."""
    large = torch.arange(50_000.0).view(-1, 5)
    for given, carried in ((large, False), (large + 1, True)):
        recorder, denoiser = calls.CallRecorder(), Counting()
        recorder.watch(denoiser, tables={"rotary": [large, None]})
        recorder.begin(active=True)
        latents, time, mask = torch.randn(1, 4, 6), torch.tensor([0.5]), torch.ones(1, 7)
        text = {"embeds": torch.randn(1, 7, 5)}
        with torch.no_grad():
            made = denoiser(latents, time, text=text, mask=mask, table=[given.clone(), None])[0]
        recorder.step(latents, made, keep=True)
        content = recorder.finish(GUIDANCE)
        assert (len(content) > large.numel() * 4) == carried
        replay = calls.DenoiserCalls(calls.read_calls([content, content]), latents.repeat(2, 1, 1), 0)
        with torch.no_grad():
            again = replay.evaluate(denoiser, torch.float32, {"rotary": [large, None]})
        assert torch.allclose(again, made.repeat(2, 1, 1), atol=1e-5)
        assert denoiser.seen[-1] == (2, 2, 7, 5)


def test_a_denoiser_that_does_not_predict_for_each_sample_is_told(calls: Planned) -> None:
    samples = [sampled(calls, i, 7) for i in (1, 2)]
    found = calls.DenoiserCalls(calls.read_calls([s[0] for s in samples]), torch.cat([s[1] for s in samples]), 0)
    with pytest.raises(RuntimeError, match="1 predictions for 4 samples: set stacked=False in CALLS"):
        found.evaluate(lambda x, **_: x[:1], torch.float32)


def test_ranks_with_other_texts_make_equally_many_calls(calls: Planned, tmp_path: Any) -> None:
    """Layers of sharded ranks wait for each other: one rank's texts are of one length, the other's of three."""
    import os

    import torch.distributed as dist

    lengths = ((7, 7, 7, 7), (7, 4, 9, 4))
    samples = [[sampled(calls, 1 + i, length) for i, length in enumerate(row)] for row in lengths]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    children = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            told = "nothing"
            try:
                store = dist.FileStore(str(tmp_path / "store"), 2)
                dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
                made, seen, expected = stacked(calls, samples[rank])
                told = f"{len(seen)} {torch.allclose(made, expected, atol=1e-6)}"
            finally:
                (tmp_path / str(rank)).write_text(told, encoding="utf-8")
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    assert [(tmp_path / str(rank)).read_text(encoding="utf-8") for rank in range(2)] == ["3 True", "3 True"]


def test_a_request_of_several_sees_the_signature_of_the_denoiser() -> None:
    """OmniGen2 gives references to a denoiser alone that names them."""
    denoiser = Counting()
    view = JoinedCalls(denoiser, "forward", {}, Passes(None)).view()
    assert inspect.signature(view.forward) == inspect.signature(denoiser.forward)
    assert inspect.signature(each_alone(denoiser.forward)) == inspect.signature(denoiser.forward)


@pytest.mark.parametrize("rows", [1, 2])
def test_equal_requests_share_a_call_of_one_row_and_none_of_two(rows: int) -> None:
    denoiser, x = Counting(), torch.ones(rows, 4, 6)
    text, mask = {"embeds": torch.ones(rows, 3, 5)}, torch.ones(rows, 3, dtype=torch.int64)
    joined = JoinedCalls(denoiser, "forward", {}, Passes(None))

    def request() -> Any:
        return joined.view()(x, torch.ones(rows), text=text, mask=mask, table=[TABLE])[0]

    made = joined.lockstep.run([request, request])
    assert [tuple(found.shape) for found in made] == [(rows, 4, 6)] * 2
    assert len(denoiser.seen) == rows


def test_samples_of_a_batch_are_called_alone() -> None:
    seen = []

    def forward(x: list[torch.Tensor], time: torch.Tensor, size: int = 2) -> tuple[list[torch.Tensor], dict[str, int]]:
        seen.append((len(x), len(time), size))
        return [row * time[0] for row in x], {}

    rows = [torch.ones(3), torch.full((3,), 2.0)]
    made, _ = each_alone(forward)(rows, torch.tensor([2.0, 3.0]), size=4)
    assert [row.tolist() for row in made] == [[2.0] * 3, [6.0] * 3]
    assert seen == [(1, 1, 4)] * 2
    assert each_alone(forward)(rows[:1], torch.tensor([2.0]))[0][0].tolist() == [2.0] * 3
