"""A rollout under each recorder, and training of what it recorded: log-probs, levels, gradients, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flow_grpo_runtime.calls import COLUMN
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.recording import DifferenceInPlace, FollowingScheduler, SchedulerInPlace, UpdateInPlace
from flow_grpo_runtime.records import read_record, write_record
from flow_grpo_runtime.replay import read_calls
from flow_grpo_runtime.tape_play import TapeError
from flow_grpo_runtime.training import RecordedTraining

LEVELS = [1.0, 0.8, 0.55, 0.25, 0.0]
SHAPE = (1, 4, 6)


class Denoiser(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(0.7))
        self.text = torch.nn.Parameter(torch.tensor(0.3))

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.weight * x * time + self.text * text.mean(dim=(1, 2)).view(-1, 1, 1) * x.cos(),)


class Module(torch.nn.Module):
    """The training module of a package: its denoiser, called as the rollout called it."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, calls: Any) -> tuple[torch.Tensor]:
        return (calls.evaluate(self.denoiser, torch.float32),)


class Euler:
    """A scheduler that may rest on the steps before."""

    def __init__(self, levels: list[float], *, sign: int = 1, stays: float = 1.0) -> None:
        self.levels, self.index, self.sign, self.stays = levels, 0, sign, stays
        self.begin_index: int | None = None

    def set_begin_index(self, index: int) -> None:
        self.begin_index = self.index = index

    def step(self, output: torch.Tensor, _: Any, x: torch.Tensor, return_dict: bool = True) -> tuple[torch.Tensor]:
        change = self.levels[self.index + 1] - self.levels[self.index]
        self.index += 1
        return (self.stays * x + self.sign * change * output,)


class Adapter(RecordedTraining):
    common = SimpleNamespace(CALLS=CallPlan(stacked=True))
    module_class = Module


CONFIG = SimpleNamespace(
    algo=SimpleNamespace(noise_level=0.7, sde_type="sde"), pipeline=SimpleNamespace(num_inference_steps=4)
)


@pytest.fixture(autouse=True)
def no_mode_left() -> Iterator[None]:
    yield
    assert torch._C._len_torch_function_stack() == 0


def texts(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, 3, 5, generator=generator) for _ in range(2)]


def begun(scheduler: FollowingScheduler, denoiser: Denoiser, **asked: Any) -> None:
    scheduler.calls.watch(denoiser)
    scheduler.begin(
        **{
            "num_inference_steps": 4,
            "window": None,
            "noise_level": 0.7,
            "sde_type": "sde",
            "record_log_probs": True,
            "generator": torch.Generator().manual_seed(1),
            **asked,
        }
    )


def guided(
    denoiser: Denoiser, x: torch.Tensor, level: float, scale: float, seed: int, until: float = 0.3
) -> torch.Tensor:
    """Guidance inside of an interval of levels, by its own text for each branch."""
    positive, negative = texts(seed)
    time = torch.tensor(level)
    conditional = denoiser(x, time, positive)[0]
    if scale == 1.0 or level < until:
        return conditional
    unconditional = denoiser(x, time, negative)[0]
    return unconditional + scale * (conditional - unconditional)


def rolled_out(
    scheduler: Any, denoiser: Denoiser, *, levels: list[float] = LEVELS, scale: float = 3.0, seed: int = 0, **asked: Any
) -> dict[str, Any]:
    """What a rollout sends: the trajectory, and the record of its calls."""
    begun(scheduler, denoiser, **asked)
    if isinstance(scheduler, SchedulerInPlace):
        scheduler.following(Euler(levels))
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        for level, following in pairwise(levels):
            made = guided(denoiser, x, level, scale, seed)
            if isinstance(scheduler, DifferenceInPlace):
                x = scheduler.step(made, level, x, following - level).prev_sample
            elif isinstance(scheduler, SchedulerInPlace):
                x = scheduler.step(made, level, x).prev_sample
            else:
                change = following - level
                x = scheduler.update(lambda a, v, change=change: a + change * v, x, made)
        latents, timesteps, log_probs = scheduler.finish()
        record = scheduler.calls.finish({"guidance_scale": scale}, scheduler.inner.sigmas.cpu())
    named = {"latents": latents, "timesteps": timesteps, "log_probs": log_probs, "record": record}
    return {name: None if tensor is None else tensor.clone() for name, tensor in named.items()}


def trained(samples: list[dict[str, Any]], denoiser: Denoiser, step: int) -> torch.Tensor:
    """Log-probs ``(B,)`` that training computes of one step."""
    latents, timesteps = (torch.cat([sample[name] for sample in samples]) for name in ("latents", "timesteps"))
    batch = {COLUMN: [sample["record"] for sample in samples]}
    module, scheduler = Module(denoiser), Adapter.build_scheduler(CONFIG)
    given = Adapter.prepare_model_inputs(module, CONFIG, latents, timesteps, None, None, None, None, batch, step)
    assert given[1] is None
    inputs = {"all_latents": latents, "all_timesteps": timesteps}
    return Adapter.forward_and_sample_previous_step(module, scheduler, CONFIG, given[0], None, inputs, step)[0]


def recorders() -> list[FollowingScheduler]:
    common: Any = Adapter.common
    return [
        SchedulerInPlace(common, "APipeline"),
        DifferenceInPlace(common, "APipeline", sign=1),
        UpdateInPlace(common, "APipeline"),
    ]


@pytest.mark.parametrize("scheduler", recorders(), ids=lambda scheduler: type(scheduler).__name__)
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_training_makes_the_rollouts_log_probs_again(scheduler: Any, scale: float) -> None:
    denoiser = Denoiser()
    sample = rolled_out(scheduler, denoiser, scale=scale)
    assert torch.allclose(read_record(sample["record"])["levels"], torch.tensor(LEVELS), atol=1e-6)
    for step in range(4):
        made = trained([sample], denoiser, step)
        assert torch.allclose(made, sample["log_probs"][:, step], rtol=0, atol=1e-6)
        denoiser.zero_grad()
        made.sum().backward()
        assert denoiser.weight.grad is not None
        assert denoiser.weight.grad.abs() > 0
        assert denoiser.text.grad is not None
        assert denoiser.text.grad.abs() > 0


@pytest.mark.parametrize("front", [True, False])
def test_tokens_of_a_reference_stand_ahead_of_the_latents_or_behind(front: bool) -> None:
    """A pipeline for edits gives its denoiser both, and steps with the part of the prediction that is the latents'."""
    denoiser = Denoiser()
    scheduler = SchedulerInPlace(Adapter.common, "APipeline")  # type: ignore[arg-type]
    begun(scheduler, denoiser)
    scheduler.following(Euler(LEVELS))
    x, (text, _) = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)), texts(0)
    reference = torch.randn(1, 3, 6, generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        for level in LEVELS[:-1]:
            whole = torch.cat([x, reference] if front else [reference, x], dim=1)
            made = denoiser(whole, torch.tensor(level), text)[0]
            x = scheduler.step(made[:, :4] if front else made[:, 3:], level, x).prev_sample
        latents, timesteps, log_probs = scheduler.finish()
        record = scheduler.calls.finish({}, scheduler.inner.sigmas.cpu())
    sample = {"latents": latents, "timesteps": timesteps, "record": record}
    node = read_record(record)["calls"][0][1]["x"]
    assert (node[0], tuple(node[1].shape)) == ("ahead" if front else "behind", (1, 3, 6))
    for step in range(4):
        assert torch.allclose(trained([sample], denoiser, step), log_probs[:, step], rtol=0, atol=1e-6)


@pytest.mark.parametrize("sde_type", ["sde", "cps", "dance_sde"])
def test_a_window_is_recorded_wherever_it_lies(sde_type: str) -> None:
    denoiser = Denoiser()
    config = SimpleNamespace(**{**vars(CONFIG), "algo": SimpleNamespace(noise_level=0.7, sde_type=sde_type)})
    for begin in range(3):
        sample = rolled_out(recorders()[0], denoiser, window=(begin, begin + 2), sde_type=sde_type)
        assert sample["latents"].shape == (1, 3, *SHAPE[1:])
        latents, timesteps = sample["latents"], sample["timesteps"]
        batch = {COLUMN: [sample["record"]]}
        scheduler = Adapter.build_scheduler(config)
        for step in range(2):
            given = Adapter.prepare_model_inputs(
                Module(denoiser), config, latents, timesteps, None, None, None, None, batch, step
            )
            inputs = {"all_latents": latents, "all_timesteps": timesteps}
            made = Adapter.forward_and_sample_previous_step(
                Module(denoiser), scheduler, config, given[0], None, inputs, step
            )[0]
            assert torch.allclose(made, sample["log_probs"][:, step], rtol=0, atol=1e-6)


def test_samples_of_a_micro_batch_may_differ_in_guidance_and_in_levels() -> None:
    denoiser = Denoiser()
    other = [1.0, 0.9, 0.6, 0.35, 0.0]
    samples = [
        rolled_out(recorders()[0], denoiser, scale=scale, seed=seed, levels=levels)
        for seed, (scale, levels) in enumerate(((3.0, LEVELS), (1.0, LEVELS), (5.5, other)))
    ]
    for step in range(4):
        for taken in (samples[:2], samples):
            made = trained(taken, denoiser, step)
            expected = torch.cat([sample["log_probs"][:, step] for sample in taken])
            assert torch.allclose(made, expected, rtol=0, atol=1e-6)


def test_a_tape_of_old_weights_is_what_the_pipeline_makes_with_new_ones() -> None:
    denoiser = Denoiser()
    sample = rolled_out(recorders()[2], denoiser)
    with torch.no_grad():
        denoiser.weight.mul_(1.05)
    batch = {COLUMN: [sample["record"]]}
    for step, level in enumerate(LEVELS[:-1]):
        given = Adapter.prepare_model_inputs(
            Module(denoiser), CONFIG, sample["latents"], sample["timesteps"], None, None, None, None, batch, step
        )
        calls = given[0]["calls"]
        with torch.no_grad():
            velocity = calls.velocity(calls.evaluate(denoiser, torch.float32))
            assert torch.equal(velocity, guided(denoiser, sample["latents"][:, step], level, 3.0, 0))


def test_a_first_level_next_to_1_is_1() -> None:
    denoiser = Denoiser()
    levels = [0.99967, *LEVELS[1:]]
    for scheduler in recorders():
        scheduler.first = 0.99967
        sample = rolled_out(scheduler, denoiser, levels=levels)
        carried = read_record(sample["record"])["levels"]
        assert carried[0] == 1.0
        assert torch.allclose(carried[1:], torch.tensor(levels[1:]), atol=1e-6)
        assert torch.allclose(trained([sample], denoiser, 0), sample["log_probs"][:, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("scheduler", recorders(), ids=lambda scheduler: type(scheduler).__name__)
def test_denoising_that_begins_below_level_1_is_refused(scheduler: Any) -> None:
    with pytest.raises(RuntimeError, match=r"begins below level 1|begins to denoise at noise level"):
        rolled_out(scheduler, Denoiser(), levels=LEVELS[1:])


def test_an_update_that_is_none_of_eulers_is_refused() -> None:
    denoiser, x = Denoiser(), torch.randn(SHAPE)
    scheduler = SchedulerInPlace(Adapter.common, "APipeline")
    begun(scheduler, denoiser)
    scheduler.following(Euler(LEVELS, stays=0.9))
    with pytest.raises(RuntimeError, match=r"makes 0.9.* x \+ .* that is no step of Euler's"):
        scheduler.step(guided(denoiser, x, 1.0, 3.0, 0), 1.0, x)
    inline, denoiser = UpdateInPlace(Adapter.common, "APipeline"), Denoiser()
    begun(inline, denoiser)
    with pytest.raises(RuntimeError, match="its step is none of Euler's"):
        inline.update(lambda a, v: a - 0.2 * v * v, x, guided(denoiser, x, 1.0, 3.0, 0))


def test_latents_that_are_changed_between_steps_are_refused() -> None:
    denoiser, x = Denoiser(), torch.randn(SHAPE)
    scheduler = SchedulerInPlace(Adapter.common, "APipeline")
    begun(scheduler, denoiser)
    scheduler.following(Euler(LEVELS))
    with torch.inference_mode():
        moved = scheduler.step(guided(denoiser, x, 1.0, 3.0, 0), 1.0, x).prev_sample.clamp(-0.1, 0.1)
        with pytest.raises(RuntimeError, match="changes the latents between steps"):
            scheduler.step(guided(denoiser, moved, 0.8, 3.0, 0), 0.8, moved)


def test_a_decision_by_a_prediction_is_refused_and_leaves_no_mode_behind() -> None:
    denoiser, x = Denoiser(), torch.randn(SHAPE)
    scheduler = SchedulerInPlace(Adapter.common, "APipeline")
    begun(scheduler, denoiser)
    scheduler.following(Euler(LEVELS))
    with torch.inference_mode():
        made = guided(denoiser, x, 1.0, 3.0, 0)
        with pytest.raises(TapeError, match=r"bool\(\) \(.*test_taped_calls.py:\d+\)"):
            scheduler.step(made if made.mean() > 0 else -made, 1.0, x)
    scheduler.calls.close()
    assert torch._C._len_torch_function_stack() == 0


def test_a_step_by_a_denoiser_that_is_not_watched_is_refused() -> None:
    denoiser, second, x = Denoiser(), Denoiser(), torch.randn(SHAPE)
    scheduler = SchedulerInPlace(Adapter.common, "APipeline")
    begun(scheduler, denoiser)
    scheduler.following(Euler(LEVELS))
    text = texts(0)[0]
    with torch.inference_mode():
        denoiser(x, torch.tensor(1.0), text)
        with pytest.raises(TapeError, match="of a module that is not watched"):
            scheduler.step(second(x, torch.tensor(1.0), text)[0], 1.0, x)


def test_a_step_by_the_prediction_of_an_earlier_one_alone_is_refused() -> None:
    denoiser, x, text = Denoiser(), torch.randn(SHAPE), texts(0)[0]
    scheduler = SchedulerInPlace(Adapter.common, "APipeline")
    begun(scheduler, denoiser)
    scheduler.following(Euler(LEVELS))
    with torch.inference_mode():
        first = denoiser(x, torch.tensor(1.0), text)[0]
        x = scheduler.step(first, 1.0, x).prev_sample
        denoiser(x, torch.tensor(0.8), text)
        with pytest.raises(TapeError, match="one of an earlier step"):
            scheduler.step(0.9 * first, 0.8, x)


def test_a_window_outside_of_the_steps_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"SDE window \[3, 6\] does not lie in the 4 steps taken"):
        rolled_out(recorders()[0], Denoiser(), window=(3, 6))


def test_validation_records_nothing() -> None:
    sample = rolled_out(recorders()[2], Denoiser(), noise_level=0.0)
    assert sample["latents"] is None
    assert sample["record"] is None


def test_a_record_without_a_tape_is_told() -> None:
    denoiser = Denoiser()
    sample = rolled_out(recorders()[0], denoiser)
    content = read_record(sample["record"])
    untaped = {name: content[name] for name in content if name not in ("tapes", "programs", "levels")}
    with pytest.raises(ValueError, match="carried no noise levels: its package is another one than training's"):
        read_calls({COLUMN: [sample["record"], write_record(untaped)]})
