"""What other algorithms do otherwise in the rollout: the place of the window, and where images of a prompt begin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flow_grpo_runtime.algorithms import SharedStart, seed_of
from flow_grpo_runtime.levels import pick_sde_window
from flow_grpo_runtime.stepped import SteppedPlan, SteppedRollout
from flow_grpo_runtime.steps import RecordingScheduler


class Plain(SteppedRollout):
    rollout_plan = SteppedPlan(common=None)


class Shared(SharedStart, Plain):
    """DanceGRPO's."""


def asked(adapter: Any, seed: int | None, prompt: Any, **extra: Any) -> tuple[Any, dict[str, Any]]:
    params = SimpleNamespace(seed=seed, generator=None, num_inference_steps=6)
    given = {"noise_level": 0.7, "global_steps": 1, **extra}
    return params, adapter()._steps(params, given, prompt)


@pytest.mark.parametrize(("every", "begins"), [(1, [0, 2, 3, 3]), (2, [0, 0, 2, 2])])
def test_a_window_slides_to_the_end_of_its_range(every: int, begins: list[int]) -> None:
    found = [pick_sde_window(2, (0, 5), step, every=every) for step in range(4)]
    assert found == [(begin, begin + 2) for begin in begins]


def test_a_window_is_drawn_of_seed_and_step_alone() -> None:
    drawn = {seed: [pick_sde_window(2, (0, 5), step, seed=seed) for step in range(60)] for seed in (0, 42)}
    assert drawn[0] != drawn[42]
    for found in drawn.values():
        assert set(found) == {(begin, begin + 2) for begin in range(4)}
    assert drawn[42] == [pick_sde_window(2, (0, 5), step, seed=42) for step in range(60)]


def test_a_request_says_how_its_window_is_found() -> None:
    sliding = {"sde_window_size": 2, "sde_window_range": [0, 5], "sample_strategy": "progressive"}
    found = [asked(Plain, 7, None, **sliding, global_steps=step, iters_per_group=2)[1]["window"] for step in (0, 2, 9)]
    assert found == [(0, 2), (2, 4), (3, 5)]


def test_images_of_a_prompt_begin_alike_and_differ_in_their_steps() -> None:
    prompt, other = {"prompt_token_ids": [1, 2, 3]}, {"prompt_token_ids": [1, 2, 4]}
    (one, first), (two, second), (three, _) = (
        asked(Shared, seed, given) for seed, given in ((7, prompt), (8, prompt), (7, other))
    )
    assert one.seed == two.seed != three.seed
    noises = [torch.randn(4, generator=found["generator"]) for found in (first, second)]
    assert not torch.equal(*noises)
    again = asked(Shared, 7, prompt)[1]["generator"]
    assert torch.equal(noises[0], torch.randn(4, generator=again))
    assert asked(Shared, 7, prompt, global_steps=2)[0].seed != one.seed


def test_a_validation_keeps_its_seed() -> None:
    params, found = asked(Shared, 7, {"prompt": "a fox"}, noise_level=0.0)
    assert (params.seed, found["generator"]) == (7, None)


def test_ids_in_any_container_are_one_prompt() -> None:
    ways = ([1, 2], torch.tensor([1, 2]), torch.tensor([[1, 2]]))
    assert len({seed_of({"prompt_ids": ids}, 3) for ids in ways}) == 1
    assert seed_of({"prompt": "a"}, 3) != seed_of({"prompt": "b"}, 3)


def test_the_noise_of_a_step_is_the_trajectorys_where_it_has_some() -> None:
    common: Any = SimpleNamespace(INCLUDE_LOGPROB_NORMALIZER=False, setup_sigmas=_levels)
    ends = []
    for own in (1, 1, None):
        scheduler = RecordingScheduler(common, "APipeline")
        generator = None if own is None else torch.Generator().manual_seed(own)
        settings: dict[str, Any] = {"window": None, "noise_level": 0.7, "sde_type": "sde", "record_log_probs": True}
        scheduler.start(num_inference_steps=2, generator=generator, **settings)
        theirs = torch.Generator().manual_seed(5 + len(ends))
        ends.append(scheduler.advance(torch.ones(1, 8), 1.0, torch.zeros(1, 8), theirs).prev_sample)
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def _levels(scheduler: Any, count: int, **_: Any) -> list[float]:
    scheduler.sigmas = torch.linspace(1.0, 0.0, count + 1)
    scheduler.timesteps = scheduler.sigmas[:-1]
    return [float(level) for level in scheduler.timesteps]
