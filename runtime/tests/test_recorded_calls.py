"""Calls of the denoiser: what is recorded comes back as it was, and what cannot is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from planned_calls import GUIDANCE, Planned, guide, replayed

from flow_grpo_runtime.calls import CallRecorder
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.records import read_record
from flow_grpo_runtime.replay import DenoiserCalls
from flow_grpo_runtime.tape_play import TapeError


class Denoiser(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, hidden_states: Any, time: torch.Tensor, *, text: Any, extra: Any = None) -> tuple[torch.Tensor]:
        hidden = torch.stack(hidden_states) if isinstance(hidden_states, list) else hidden_states
        shift = sum(t.mean() for t in text.values())
        return (self.weight * hidden * time.reshape(-1, *[1] * (hidden.ndim - 1)) + shift,)


def walk(calls: Planned, call: Callable[..., torch.Tensor], steps: int = 3) -> tuple[torch.Tensor, list[Any], Any]:
    """Walk some steps; ``call`` calls the denoiser as a pipeline would and returns what it takes its step with."""
    recorder, denoiser, latents = calls.CallRecorder(), Denoiser(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    seen = []
    for step in range(steps):
        with torch.no_grad():
            velocity = call(denoiser, latents, step)
        assert torch.allclose(recorder.step(latents, velocity, keep=True), velocity, atol=1e-5)
        seen.append((latents, velocity))
        latents = latents - 0.1 * velocity
    return recorder.finish(GUIDANCE), seen, denoiser


def text(length: int, seed: int) -> dict[str, torch.Tensor]:
    return {"embeds": torch.randn(1, length, 64, generator=torch.Generator().manual_seed(seed))}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_calls_come_back_whichever_is_first(calls: Planned, order: tuple[int, int]) -> None:
    given = [text(400, 1), text(3, 2)]

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        made = {i: denoiser(latents, torch.tensor([0.9 - 0.1 * step]), text=given[i])[0] for i in order}
        return guide(made[0], made[1])

    content, seen, denoiser = walk(calls, call)
    for value in given:
        value["embeds"].zero_()  # what the pipeline changes later is not what it gave
    for step, (latents, velocity) in enumerate(seen):
        assert torch.allclose(replayed(calls, content, latents, step, denoiser), velocity, atol=1e-6)
    assert len(content) < 1.5 * 400 * 64 * 4  # the prompt is kept once, not once a step


def test_branches_evaluated_as_a_batch_come_back(calls: Planned) -> None:
    prompt = text(5, 1)

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        doubled = list(torch.cat([latents, latents]).unbind())
        out = denoiser(doubled, torch.tensor([0.5, 0.25 + 0.1 * step]), text=prompt)[0]
        return guide(out[1:], out[:1])

    content, seen, denoiser = walk(calls, call)
    for step, (latents, velocity) in enumerate(seen):
        assert torch.allclose(replayed(calls, content, latents, step, denoiser), velocity, atol=1e-6)


class OfLayers(Denoiser):
    """Takes states layer by layer, each with all samples; of two layers and two samples the shape tells nothing."""

    def forward(self, hidden_states: Any, time: torch.Tensor, *, text: Any, extra: Any = None) -> tuple[torch.Tensor]:
        states = text[0] + 2 * text[1]
        return (self.weight * hidden_states * time[:, None, None] + states[..., None],)


def test_samples_that_lie_along_another_dimension_are_told_apart() -> None:
    plan, states = CallPlan(stacked=True, sample_dims={"text": 1}), torch.randn(2, 2, 4)
    recorder, denoiser, latents = CallRecorder(plan), OfLayers(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        out = denoiser(torch.cat([latents, latents]), torch.full((2,), 0.5), text=states)[0]
    velocity = guide(out[1:], out[:1])
    assert torch.allclose(recorder.step(latents, velocity, keep=True), velocity, atol=1e-5)
    records = [read_record(recorder.finish(GUIDANCE))] * 2
    calls = DenoiserCalls(plan, records, torch.cat([latents, latents]), 0)
    made = calls.velocity(calls.evaluate(denoiser, torch.float32))
    assert torch.allclose(made, velocity.expand_as(made), atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2])
def test_latents_behind_a_given_frame_are_those_of_training(calls: Planned, rows: int) -> None:
    """An image's first frame goes to the denoiser with the latents, and the scheduler gets what lies behind it."""
    frame = torch.randn(1, 4, 2)

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        whole = torch.cat([frame, latents], dim=2).repeat(rows, 1, 1)
        made = denoiser(whole, torch.full((rows,), 0.9 - 0.1 * step), text=text(3, 1))[0][:, :, 2:]
        return guide(*made.flip(0).split(1)) if rows == 2 else guide(made, None)

    content, seen, denoiser = walk(calls, call)
    given = calls.read_calls([content])[0]["calls"][0][1]["hidden_states"]
    assert given[0] == "behind"
    assert given[1].shape == (rows, 4, 2)
    for step, (latents, velocity) in enumerate(seen):
        assert torch.allclose(replayed(calls, content, latents, step, denoiser), velocity, atol=1e-6)
        moved = replayed(calls, content, latents + 1, step, denoiser)
        assert torch.allclose(moved - velocity, torch.full_like(velocity, 2 * (0.9 - 0.1 * step)), atol=1e-5)


def test_a_denoiser_that_doubles_its_sample_itself_is_called_for_each(calls: Planned) -> None:
    prompt = text(5, 1)

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        out = denoiser(latents, torch.tensor([0.5, 0.25 + 0.1 * step]), text=prompt)[0]
        return guide(out[1:], out[:1])

    content, seen, denoiser = walk(calls, call)
    for step, (latents, velocity) in enumerate(seen):
        assert torch.allclose(replayed(calls, content, latents, step, denoiser), velocity, atol=1e-6)
        both = calls.DenoiserCalls(calls.read_calls([content] * 2), latents.repeat(2, 1, 1), step)
        assert torch.equal(*both.velocity(both.evaluate(denoiser, torch.float32)).split(1))


def test_a_step_without_the_unconditional_branch_has_none(calls: Planned) -> None:
    given = [text(4, 1), text(5, 2)]

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        time = torch.tensor([0.5])
        made = [denoiser(latents, time, text=value)[0] for value in given[: 2 if step < 2 else 1]]
        return guide(made[0], made[1] if len(made) > 1 else None)

    content, seen, denoiser = walk(calls, call)
    counts = []
    for step, (latents, velocity) in enumerate(seen):
        found = calls.DenoiserCalls(calls.read_calls([content]), latents, step)
        made = found.evaluate(denoiser, torch.float32)
        assert torch.allclose(found.velocity(made), velocity, atol=1e-6)
        counts.append(len(made))
    assert counts == [2, 2, 1]


def test_arguments_in_the_dtype_of_the_weights_follow_them(calls: Planned) -> None:
    content, seen, _ = walk(calls, lambda d, x, _: d(x, torch.tensor([0.123456789]), text=text(2, 1), extra=7)[0])
    given: list[dict[str, Any]] = []

    def denoiser(**arguments: Any) -> torch.Tensor:
        given.append(arguments)
        return arguments["hidden_states"]

    calls.DenoiserCalls(calls.read_calls([content]), seen[0][0], 0).evaluate(denoiser, torch.bfloat16)
    assert given[0]["hidden_states"].dtype == given[0]["text"]["embeds"].dtype == torch.bfloat16
    assert given[0]["extra"] == 7


def test_a_call_under_autocast_is_made_under_it_again(calls: Planned) -> None:
    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(6, 6)

        def forward(self, hidden_states: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
            return self.layer(hidden_states) * time

    recorder, denoiser, latents = calls.CallRecorder(), Linear(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        velocity = denoiser(latents, torch.tensor([0.5]))
        widened = velocity.float()
    recorder.step(latents, widened, keep=True)
    again = calls.DenoiserCalls(calls.read_calls([recorder.finish(GUIDANCE)]), latents, 0).evaluate(
        denoiser, torch.float32
    )
    assert torch.equal(again.float(), velocity.float())
    assert not torch.equal(denoiser(latents, torch.tensor([0.5])), velocity.float())  # it makes a difference


def test_what_cannot_be_carried_is_named(calls: Planned) -> None:
    class Cache:
        pass

    with pytest.raises(NotImplementedError, match="the denoiser's extra is a Cache"):
        walk(calls, lambda d, x, _: d(x, torch.tensor([0.5]), text=text(2, 1), extra=Cache())[0])


def test_a_step_without_a_call_is_refused(calls: Planned) -> None:
    with pytest.raises(RuntimeError, match="without calling its denoiser"):
        walk(calls, lambda d, x, _: x)


def test_arguments_without_names_are_refused(calls: Planned) -> None:
    class Open(torch.nn.Module):
        def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
            return x + sum(more)

    recorder, denoiser, latents = calls.CallRecorder(), Open(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with pytest.raises(NotImplementedError, match=r"Open was called with \*more, which have no names to carry"):
        denoiser(latents, latents)


def test_what_is_no_prediction_is_refused(calls: Planned) -> None:
    with pytest.raises(TypeError, match=r"the denoiser returned \(1, 4, 5\), which is no prediction for latents"):
        walk(calls, lambda d, x, _: d(x[..., :5], torch.tensor([0.5]), text=text(2, 1))[0].mean() + x)


def test_other_calls_than_in_the_first_step_are_refused() -> None:
    """Where later calls rest on what the first ones left, each is recorded as the one in its place."""
    calls = Planned(CallPlan(first="extra"))

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        time = torch.tensor([0.5])
        return sum(denoiser(latents, time, text=text(2, seed), extra=step == 0)[0] for seed in range(2 - step))

    with pytest.raises(RuntimeError, match="made 2 calls in its first step and 1 in a later one"):
        walk(calls, call, 2)


def test_what_numpy_did_in_the_memory_of_a_tensor_is_seen(calls: Planned) -> None:
    memory = np.zeros((1, 4, 6), dtype=np.float32)
    held = torch.from_numpy(memory)

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        held.copy_(denoiser(latents, torch.tensor([0.5]), text=text(2, 1))[0])
        np.multiply(memory, 2, out=memory)
        return held + 0.0

    with pytest.raises(TapeError, match=r"off from what it steps with: something else took part \(a kernel, numpy\)"):
        walk(calls, call)


def test_calls_of_other_trajectories_are_refused(calls: Planned) -> None:
    content, seen, _ = walk(calls, lambda d, x, _: d(x, torch.tensor([0.5]), text=text(2, 1))[0])
    latents = seen[0][0]
    with pytest.raises(ValueError, match="2 samples for 1 trajectories"):
        calls.DenoiserCalls(calls.read_calls([content, content]), latents, 0)
    with pytest.raises(ValueError, match="step 3 is asked for"):
        calls.DenoiserCalls(calls.read_calls([content]), latents, 3)
    found = calls.DenoiserCalls(calls.read_calls([content]), latents, 0)
    with pytest.raises(ValueError, match="2 predictions were made where the tapes take 1"):
        found.velocity(latents.repeat(2, 1, 1))
    parts = [{**calls.read_calls([content])[0], "free": [torch.arange(24).view(1, 4, 6) < n] * 3} for n in (6, 12)]
    with pytest.raises(ValueError, match="samples of a micro-batch differ in how much of their latents is given"):
        _ = calls.DenoiserCalls(parts, latents.repeat(2, 1, 1), 0).free


def test_a_dictionary_is_what_it_was_before_the_call_filled_or_emptied_it(calls: Planned) -> None:
    class Filling(torch.nn.Module):
        def forward(self, x: torch.Tensor, cache: dict[str, Any], options: dict[str, float]) -> torch.Tensor:
            cache.setdefault("text", torch.ones(3))
            return x * options.pop("scale")

    recorder, denoiser, latents = calls.CallRecorder(), Filling(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    cache: dict[str, Any] = {}
    for _ in range(2):
        velocity = denoiser(latents, cache, {"scale": 2.0})
        recorder.step(latents, velocity, keep=True)
    content = recorder.finish(GUIDANCE)
    seen = []
    denoiser.register_forward_pre_hook(lambda _, args, kwargs: seen.append(len(kwargs["cache"])), with_kwargs=True)
    for step in range(2):
        for _ in range(2):  # what one evaluation fills, the next does not see
            made = calls.DenoiserCalls(calls.read_calls([content]), latents, step)
            assert torch.equal(made.evaluate(denoiser, torch.float32), 2 * latents)
    assert seen == [0, 0, 0, 0]
