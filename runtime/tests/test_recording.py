"""Schedulers of the rollout in the place of a pipeline's own."""

from __future__ import annotations

import copy
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flow_grpo_runtime.guidance import settings_of
from flow_grpo_runtime.levels import pick_sde_window, schedule
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.recording import SchedulerInPlace, UpdateInPlace

ASKED: dict[str, Any] = {
    "window": None,
    "noise_level": 0.7,
    "sde_type": "sde",
    "record_log_probs": True,
    "generator": None,
}


class Euler:
    def __init__(self, levels: list[float]) -> None:
        self.levels, self.begin_index = levels, 0

    def set_begin_index(self, index: int) -> None:
        self.begin_index = index

    def step(self, velocity: torch.Tensor, _: Any, sample: torch.Tensor, return_dict: bool) -> tuple[torch.Tensor]:
        return (sample + (self.levels[self.begin_index + 1] - self.levels[self.begin_index]) * velocity,)


def setup_sigmas(scheduler: Any, count: int, **_: Any) -> list[float]:
    sigmas = [1 - index / count for index in range(count)]
    scheduler.sigmas, scheduler.timesteps = torch.tensor([*sigmas, 0.0]), torch.tensor(sigmas)
    return sigmas


def begun(**given: Any) -> Any:
    common: Any = SimpleNamespace(CALLS=CallPlan(), INCLUDE_LOGPROB_NORMALIZER=False, setup_sigmas=setup_sigmas)
    scheduler = SchedulerInPlace(common, "APipeline")
    scheduler.begin(num_inference_steps=4, **ASKED, **given)
    followed = scheduler.following(Euler([1.0, 0.75, 0.5, 0.25, 0.0]))
    assert followed is scheduler  # a method that makes the scheduler steps with what it gets here
    return followed


def test_steps_are_recorded_where_no_denoiser_is_watched() -> None:
    scheduler, latents = begun(record_calls=False), torch.randn(1, 2, 3)
    for level in (1.0, 0.75, 0.5, 0.25):
        latents = scheduler.step(0.5 * latents, level, latents).prev_sample
    recorded, _, log_probs = scheduler.end()
    assert recorded.shape == (1, 5, 2, 3)
    assert log_probs.shape == (1, 4)


def test_a_step_without_a_call_is_refused_where_one_is_watched() -> None:
    with pytest.raises(RuntimeError, match="without calling its denoiser"):
        begun().step(torch.zeros(1, 2, 3), 1.0, torch.randn(1, 2, 3))


def _walk(seed: int | None) -> torch.Tensor:
    """Latents after each step, from zeros and without a velocity: the noise alone."""
    scheduler, latents = begun(record_calls=False, seed=seed), torch.zeros(1, 2, 3)
    for level in (1.0, 0.75, 0.5, 0.25):
        latents = scheduler.step(torch.zeros(1, 2, 3), level, latents).prev_sample
    recorded: torch.Tensor = scheduler.end()[0]
    return recorded


def test_noise_follows_from_the_seed_of_the_request() -> None:
    first, again, other, unseeded = _walk(7), _walk(7), _walk(8), _walk(None)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(unseeded, _walk(None))
    initial = torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(7))
    step = first[:, 1] / first[:, 1].norm()
    assert not torch.allclose(step, initial / initial.norm(), atol=1e-3), "the initial latents came again as noise"


def test_a_step_outside_of_a_request_is_refused() -> None:
    common: Any = SimpleNamespace(CALLS=CallPlan())
    scheduler = SchedulerInPlace(common, "APipeline").following(Euler([1.0, 0.0]))
    with pytest.raises(RuntimeError, match=r"takes a step outside of the rollout adapter's forward\(\)"):
        scheduler.step(torch.zeros(1, 2), 1.0, torch.zeros(1, 2))


def test_the_scheduler_in_place_is_the_pipelines_in_all_else() -> None:
    common: Any = SimpleNamespace(CALLS=CallPlan())
    scheduler = SchedulerInPlace(common, "APipeline")
    with pytest.raises(AttributeError, match="SchedulerInPlace has no attribute 'config'"):
        _ = scheduler.config
    own = Euler([1.0, 0.0])
    scheduler.following(own)
    assert copy.deepcopy(scheduler) is scheduler
    scheduler.config = {"shift": 3.0}
    assert own.config == {"shift": 3.0}  # type: ignore[attr-defined]
    assert scheduler.levels == []


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([1.0, 0.5, 0.5, 0.0], "takes a step that changes nothing, number 1"),
        ([1.0, 0.4, -0.3, -0.4], "goes from noise level 0.400000 to -0.300000"),
        ([1.0, 0.5, 0.7, 0.0], "that is no step of Euler's"),
        ([1.0, 0.9, 0.8, 0.7], "ended at noise level 0.7"),
    ],
)
@pytest.mark.parametrize("kind", ["scheduler", "update"])
def test_levels_that_do_not_fall_to_nothing_are_refused(levels: list[float], message: str, kind: str) -> None:
    if kind == "update" and "no step of Euler's" in message:
        message = "its step is none of Euler's"
    with pytest.raises(RuntimeError, match=message):
        walked(levels, kind)


def walked(levels: list[float], kind: str) -> Any:
    """What a pipeline records that steps along these levels."""
    common: Any = SimpleNamespace(CALLS=CallPlan())
    scheduler: Any = (SchedulerInPlace if kind == "scheduler" else UpdateInPlace)(common, "APipeline")
    scheduler.begin(num_inference_steps=len(levels) - 1, record_calls=False, **ASKED)
    own, x = Euler(levels), torch.ones(1, 2, 3)
    if kind == "scheduler":
        scheduler.following(own)
    for level, following in pairwise(levels):
        if kind == "scheduler":
            x = scheduler.step(torch.ones_like(x), level, x).prev_sample
        else:
            change = following - level
            x = scheduler.update(lambda a, v, change=change: a + change * v, x, torch.ones_like(x))
    return scheduler.finish()


def test_a_frame_that_is_given_takes_no_part() -> None:
    common: Any = SimpleNamespace(CALLS=CallPlan())
    scheduler = UpdateInPlace(common, "APipeline")
    scheduler.begin(num_inference_steps=2, record_calls=False, **{**ASKED, "window": (0, 2)})
    x, given = torch.ones(1, 3, 4), torch.tensor([True, False, False])
    for level, following in ((1.0, 0.5), (0.5, 0.0)):
        made = torch.where(given[None, :, None], 0.0, torch.ones_like(x))
        moved = scheduler.update(lambda a, v, c=following - level: a + c * v * ~given[None, :, None], x, made)
        assert torch.equal(moved[:, given], x[:, given])
        assert not torch.equal(moved[:, ~given], x[:, ~given])
        x = moved
    latents, _, log_probs = scheduler.finish()
    assert latents is not None
    assert log_probs is not None
    assert latents.shape == (1, 3, 3, 4)
    assert torch.equal(latents[0, :, 0], torch.ones(3, 4))


class Held(Euler):
    """A scheduler that shows its levels."""

    @property
    def sigmas(self) -> torch.Tensor:
        return torch.tensor(self.levels)


def dropped_first(own: Any, window: tuple[int, int], following: float = 0.7) -> tuple[Any, list[torch.Tensor]]:
    """What a pipeline records whose loop drops what its scheduler makes of the first step, and its latents."""
    common: Any = SimpleNamespace(CALLS=CallPlan(), INCLUDE_LOGPROB_NORMALIZER=False)
    scheduler = UpdateInPlace(common, "APipeline")
    scheduler.begin(num_inference_steps=3, record_calls=False, **{**ASKED, "window": window})
    seen = [torch.ones(1, 2, 3)]
    for index, change in enumerate((0.0, following - 0.4, 0.4)):

        def own_update(x: torch.Tensor, v: torch.Tensor, index: int = index, change: float = change) -> torch.Tensor:
            own.set_begin_index(index)
            return x - change * v

        seen.append(scheduler.update(own_update, seen[-1], torch.ones(1, 2, 3)))
    return scheduler, seen


def test_a_step_that_the_loop_drops_goes_to_the_schedulers_next_level() -> None:
    """A comparison rounded in bfloat16, say, drops a step: the next one is taken at the level behind it."""
    scheduler, seen = dropped_first(Held([1.0, 0.7, 0.4, 0.0]), (1, 3))
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])
    assert scheduler.levels == pytest.approx([1.0, 0.7, 0.4, 0.0])
    latents, _, log_probs = scheduler.finish()
    assert latents.shape == (1, 3, 2, 3)
    assert log_probs.shape == (1, 2)


@pytest.mark.parametrize(
    ("own", "window", "following", "message"),
    [
        (Held([1.0, 0.7, 0.4, 0.0]), (0, 3), 0.7, "leaves all latents as they are in step 0"),
        (Euler([1.0, 0.7, 0.4, 0.0]), (1, 3), 0.7, "takes a step that changes nothing, number 0"),
        (Held([1.0, 1.0, 0.7, 0.0]), (1, 3), 0.7, "takes a step that changes nothing, number 0"),
        (Held([0.9, 0.7, 0.4, 0.0]), (1, 3), 0.7, "begins to denoise at noise level 0.9"),
        (Held([1.0, 0.9, 0.4, 0.0]), (1, 3), 0.7, "the schedules differ"),
    ],
    ids=["in the window", "no levels", "no next level", "below one", "other levels"],
)
def test_a_dropped_step_of_which_training_knows_too_little_is_refused(
    own: Any, window: tuple[int, int], following: float, message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        dropped_first(own, window, following)[0].finish()


def test_a_pipeline_that_takes_no_step_is_refused_but_for_the_warm_up() -> None:
    common: Any = SimpleNamespace(CALLS=CallPlan())
    scheduler = SchedulerInPlace(common, "APipeline")
    scheduler.begin(num_inference_steps=4, **ASKED)
    assert scheduler.finish(warm_up=True) == (None, None, None)
    scheduler.begin(num_inference_steps=4, **ASKED)
    with pytest.raises(RuntimeError, match="APipeline took no step with SchedulerInPlace"):
        scheduler.finish()


def test_a_window_is_drawn_from_the_training_step_alone() -> None:
    assert len({pick_sde_window(2, [1, 8], 5) for _ in range(3)}) == 1
    drawn = {pick_sde_window(2, [1, 8], step) for step in range(200)}
    assert drawn == {(begin, begin + 2) for begin in range(1, 7)}
    assert pick_sde_window(2, None, None) == (0, 2)
    assert pick_sde_window(0, [0, 4], None) is None
    assert pick_sde_window(2, [3, 5], None) == (3, 5)
    with pytest.raises(ValueError, match="has no global_steps, from which its SDE window is drawn"):
        pick_sde_window(2, [1, 8], None)


def test_a_schedule_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="num_inference_steps must be at least 1, got 0"):
        schedule(lambda num_inference_steps: [1.0])(0)


def test_settings_of_guidance_have_one_type() -> None:
    resolve = settings_of({"scale": 3.0, "interval": (0.0, 1.0), "kind": "a"}, choices={"kind": ("a", "b")})
    assert resolve({"scale": "4", "interval": [0, 1]}) == {"scale": 4.0, "interval": (0.0, 1.0), "kind": "a"}
    with pytest.raises(ValueError, match="interval must be 2 numbers, got 'all'"):
        resolve({"interval": "all"})
    with pytest.raises(ValueError, match=r"kind must be one of \('a', 'b'\), got 'c'"):
        resolve({"kind": "c"})
