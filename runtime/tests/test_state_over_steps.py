"""What a pipeline keeps of one step for later ones is a constant of these, and said wherever its loop makes it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest
import torch
from test_taped_calls import CONFIG, LEVELS, SHAPE, Adapter, Denoiser, Module, begun, recorders, rolled_out, texts

from flow_grpo_runtime.calls import COLUMN
from flow_grpo_runtime.recording import UpdateInPlace
from flow_grpo_runtime.records import read_record

Tensor = torch.Tensor
Turn = Callable[[Callable[[float], Tensor], Callable[[Tensor], Tensor], dict[str, Any], float], None]


def before_the_update(predict: Any, step: Any, kept: dict[str, Any], level: float) -> None:
    velocity = predict(level)
    step(velocity if not kept else 1.5 * velocity - 0.5 * kept["velocity"])
    kept["velocity"] = velocity


def behind_the_update(predict: Any, step: Any, kept: dict[str, Any], level: float) -> None:
    velocity = predict(level)
    step(velocity + 0.1 * kept["mean"] if kept else velocity)
    kept["mean"] = velocity.detach() if not kept else 0.9 * kept["mean"] + velocity


def in_front_of_the_call(predict: Any, step: Any, kept: dict[str, Any], level: float) -> None:
    pull = 0.1 * kept["velocity"].flip(1) if kept else torch.zeros(SHAPE)
    velocity = predict(level)
    step(velocity + pull)
    kept["velocity"] = velocity


def into_a_buffer(predict: Any, step: Any, kept: dict[str, Any], level: float) -> None:
    kept.setdefault("buffer", torch.zeros(2, *SHAPE[1:]))
    velocity = predict(level)
    step(velocity + kept["buffer"][:1])
    kept["buffer"][:1] = 0.2 * velocity
    kept["buffer"].mul_(0.5)


TURNS = [before_the_update, behind_the_update, in_front_of_the_call, into_a_buffer]


def rolled(scheduler: Any, denoiser: Denoiser, turn: Turn) -> dict[str, Any]:
    """A rollout whose turns keep what they will."""
    begun(scheduler, denoiser)
    kept: dict[str, Any] = {}
    text, x = texts(0)[0], [torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))]
    with torch.inference_mode():
        for level, following in pairwise(LEVELS):
            change = following - level

            def step(made: Tensor, change: float = change) -> None:
                x[0] = scheduler.update(lambda a, v: a + change * v, x[0], made)

            turn(lambda at: denoiser(x[0], torch.tensor(at), text)[0], step, kept, level)
        latents, timesteps, log_probs = scheduler.finish()
        record = scheduler.calls.finish({}, scheduler.inner.sigmas.cpu())
    assert torch._C._len_torch_function_stack() == 0
    return {"latents": latents.clone(), "timesteps": timesteps, "log_probs": log_probs, "record": record.clone()}


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.__name__)
def test_it_is_exact_and_said_with_its_statement(turn: Turn, caplog: pytest.LogCaptureFixture) -> None:
    denoiser, scheduler = Denoiser(), UpdateInPlace(Adapter.common, "APipeline")
    with caplog.at_level(logging.WARNING):
        sample = rolled(scheduler, denoiser, turn)
    (said,) = read_record(sample["record"])["state"]
    first, last = turn.__code__.co_firstlineno, turn.__code__.co_firstlineno + 6
    places = [f"test_state_over_steps.py:{line}" for line in range(first, last)]
    assert said in [f"{place}: predictions of steps before take part" for place in places]
    assert [record.getMessage() for record in caplog.records] == [f"carried as constants, where gradients end: {said}"]
    batch = {COLUMN: [sample["record"]]}
    scheduler = Adapter.build_scheduler(CONFIG)
    for step in range(4):
        latents, timesteps = sample["latents"], sample["timesteps"]
        given = Adapter.prepare_model_inputs(
            Module(denoiser), CONFIG, latents, timesteps, None, None, None, None, batch, step
        )
        inputs = {"all_latents": latents, "all_timesteps": timesteps}
        made = Adapter.forward_and_sample_previous_step(
            Module(denoiser), scheduler, CONFIG, given[0], None, inputs, step
        )[0]
        assert torch.allclose(made, sample["log_probs"][:, step], rtol=0, atol=1e-6)
        denoiser.zero_grad()
        made.sum().backward()
        assert denoiser.weight.grad is not None


def test_numbers_that_are_read_between_steps_are_said() -> None:
    def scaled(predict: Any, step: Any, kept: dict[str, Any], level: float) -> None:
        velocity = predict(level)
        step(velocity * kept.get("scale", 1.0))
        assert not torch.isnan(velocity).any()
        kept["scale"] = float(velocity.norm())

    sample = rolled(UpdateInPlace(Adapter.common, "APipeline"), Denoiser(), scaled)
    (said,) = read_record(sample["record"])["state"]
    assert said.startswith("test_state_over_steps.py:")
    assert said.endswith(": numbers of predictions of steps before are read with float()")


@pytest.mark.parametrize("scheduler", recorders(), ids=lambda scheduler: type(scheduler).__name__)
def test_a_loop_that_keeps_nothing_says_nothing(scheduler: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert read_record(rolled_out(scheduler, Denoiser())["record"])["state"] == []
    assert not caplog.records


def test_noise_that_is_drawn_between_steps_is_none_of_the_tapes() -> None:
    def beside(predict: Any, step: Any, kept: dict[str, Any], level: float) -> None:
        step(predict(level))
        torch.randn(SHAPE).mul_(2)

    assert read_record(rolled(recorders()[2], Denoiser(), beside)["record"])["state"] == []


def test_a_step_with_an_earlier_prediction_alone_is_refused_with_its_statement() -> None:
    def every_second(predict: Any, step: Any, kept: dict[str, Any], level: float) -> None:
        if len(kept) % 2 == 0:
            kept["velocity"] = predict(level)
        kept[level] = level
        step(kept["velocity"])

    denoiser, scheduler = Denoiser(), UpdateInPlace(Adapter.common, "APipeline")
    told = r"a step without calling its denoiser \(.*test_state_over_steps.py:\d+\), with what a step before predicted"
    with pytest.raises(RuntimeError, match=told):
        rolled(scheduler, denoiser, every_second)
    scheduler.calls.close()
    assert torch._C._len_torch_function_stack() == 0


def test_a_mode_around_each_turn_is_left_as_it_was_entered() -> None:
    def within(predict: Any, step: Any, kept: dict[str, Any], level: float) -> None:
        with torch.device("cpu"):
            behind_the_update(predict, step, kept, level)
        assert torch._C._len_torch_function_stack() == 0

    record = read_record(rolled(recorders()[2], Denoiser(), within)["record"])
    assert record["state"] == ["numbers as many as the latents take part, which may be of steps before"]


def test_a_mode_that_is_entered_between_steps_and_holds_the_call_and_the_step() -> None:
    def after_the_first(predict: Any, step: Any, kept: dict[str, Any], level: float) -> None:
        with torch.device("cpu") if kept else nullcontext():
            behind_the_update(predict, step, kept, level)

    assert read_record(rolled(recorders()[2], Denoiser(), after_the_first)["record"])["state"]
