"""Calls of the denoiser: caches that a call fills are none of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from planned_calls import GUIDANCE, Planned, guide, replayed


class Caching(torch.nn.Module):
    """Its first call makes keys of the text and leaves them in what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(2.0))
        self.keys = torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, hidden_states: torch.Tensor, *, text: torch.Tensor, cache: Any) -> torch.Tensor:
        if isinstance(cache, torch.Tensor):  # a buffer, filled in place
            if not cache.any():
                cache.copy_(self.keys * text)
            made = cache
        else:
            made = cache.setdefault("layers", {}).get("keys")
            if made is None:
                made = cache["layers"]["keys"] = self.keys * text
        return self.weight * hidden_states + made.mean()


CACHES = {"dictionary": dict, "nested": lambda: {"layers": {}}, "buffer": lambda: torch.zeros(1, 5)}


def walk_cached(calls: Planned, given: Callable[[int], tuple[Any, Any]]) -> tuple[torch.Tensor, list[Any], Any]:
    """Three steps of a pipeline that gives its denoiser a cache for each branch."""
    recorder, denoiser, latents = calls.CallRecorder(), Caching(), torch.randn(1, 4, 6)
    texts = torch.randn(1, 5), torch.randn(1, 5)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    seen = []
    for step in range(3):
        with torch.no_grad():
            made = [denoiser(latents, text=t, cache=c) for t, c in zip(texts, given(step), strict=True)]
        velocity = guide(*made)
        recorder.step(latents, velocity, keep=step > 0)  # the call that fills the caches is in no window
        seen.append((latents, velocity))
        latents = latents - 0.1 * velocity
    return recorder.finish(GUIDANCE), seen[1:], denoiser


@pytest.mark.parametrize("kind", CACHES)
def test_a_cache_that_a_call_fills_is_computed_anew(calls: Planned, kind: str) -> None:
    held = CACHES[kind](), CACHES[kind]()
    content, seen, denoiser = walk_cached(calls, lambda step: held)
    for step, (latents, velocity) in enumerate(seen):
        assert torch.allclose(replayed(calls, content, latents, step, denoiser), velocity, atol=1e-5)
    again = calls.DenoiserCalls(calls.read_calls([content]), seen[0][0], 0)
    first = again.evaluate(denoiser, torch.float32)
    assert torch.equal(again.evaluate(denoiser, torch.float32), first)
    # What is behind the cache alone: the replay sees its change, and its gradient.
    first.sum().backward()
    assert denoiser.keys.grad is not None
    assert denoiser.keys.grad.abs() > 0
    with torch.no_grad():
        denoiser.keys.add_(1.0)
        assert (again.evaluate(denoiser, torch.float32) - first).abs().max() > 1e-3


def test_one_cache_for_both_branches_is_reset_for_both(calls: Planned) -> None:
    class Both(Caching):
        def forward(self, hidden_states: torch.Tensor, *, text: torch.Tensor, cache: dict) -> torch.Tensor:
            key = float(text.sum())
            if key not in cache:
                cache[key] = self.keys * text
            return self.weight * hidden_states + cache[key].mean()

    recorder, denoiser, latents = calls.CallRecorder(), Both(), torch.randn(1, 4, 6)
    texts, cache, seen = (torch.randn(1, 5), torch.randn(1, 5)), {}, []
    recorder.watch(denoiser)
    recorder.begin(active=True)
    for _ in range(2):
        with torch.no_grad():
            velocity = guide(*(denoiser(latents, text=text, cache=cache) for text in texts))
        recorder.step(latents, velocity, keep=True)
        seen.append((latents, velocity))
        latents = latents - 0.1 * velocity
    content = recorder.finish(GUIDANCE)
    with torch.no_grad():
        denoiser.keys.add_(1.0)
    for step, (latents, velocity) in enumerate(seen):
        assert (replayed(calls, content, latents, step, denoiser) - velocity).abs().max() > 1e-3


def test_a_cache_that_every_step_adds_to_is_refused(calls: Planned) -> None:
    class Adding(Caching):
        def forward(self, hidden_states: torch.Tensor, *, text: torch.Tensor, cache: list) -> torch.Tensor:
            cache.append(self.keys * hidden_states)
            return self.weight * hidden_states + sum(entry.mean() for entry in cache)

    recorder, denoiser, latents, cache = calls.CallRecorder(), Adding(), torch.randn(1, 4, 6), []
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        velocity = denoiser(latents, text=torch.randn(1, 5), cache=cache)
        recorder.step(latents, velocity, keep=True)
        with pytest.raises(NotImplementedError, match="cache in one step after the other"):
            denoiser(latents, text=torch.randn(1, 5), cache=cache)


@pytest.mark.parametrize(
    ("cache", "again"),
    [
        ({}, lambda cache: {name: dict(item) for name, item in cache.items()}),
        ({}, lambda cache: {"layers": {"keys": cache["layers"]["keys"][:, :5]}}),
        (torch.zeros(1, 5), lambda cache: cache[:, :5]),
    ],
    ids=["copied", "cut", "view of a buffer"],
)
def test_what_a_call_left_in_a_cache_is_no_argument_in_another(
    calls: Planned, cache: Any, again: Callable[[Any], Any]
) -> None:
    cache = cache.clone() if isinstance(cache, torch.Tensor) else dict(cache)
    recorder, denoiser, latents = calls.CallRecorder(), Caching(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        velocity = denoiser(latents, text=torch.randn(1, 5), cache=cache)
        recorder.step(latents, velocity, keep=True)
        with pytest.raises(NotImplementedError, match="made of the rollout's weights"):
            denoiser(latents, text=torch.randn(1, 5), cache=again(cache))


def test_an_argument_that_comes_back_or_lies_in_a_cache_stays_an_argument(calls: Planned) -> None:
    class Keeping(Caching):
        def forward(self, hidden_states: torch.Tensor, *, text: torch.Tensor, cache: dict) -> tuple[torch.Tensor, ...]:
            cache["text"] = text
            return self.weight * hidden_states + text.mean(), text

    recorder, denoiser, latents, text = calls.CallRecorder(), Keeping(), torch.randn(1, 4, 6), torch.randn(1, 5)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        for _ in range(2):
            velocity, _ = denoiser(latents, text=text, cache={})
            recorder.step(latents, velocity, keep=True)
    content = recorder.finish(GUIDANCE)
    again = calls.DenoiserCalls(calls.read_calls([content]), latents, 1).evaluate(denoiser, torch.float32)
    assert torch.equal(again, velocity)


def test_what_a_call_returned_is_no_argument_of_the_next(calls: Planned) -> None:
    class Returning(Caching):
        def forward(self, hidden_states: torch.Tensor, *, cache: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
            made = self.keys * hidden_states if cache is None else cache
            return self.weight * hidden_states + made.mean(), made

    recorder, denoiser, latents = calls.CallRecorder(), Returning(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        velocity, made = denoiser(latents)
        recorder.step(latents, velocity, keep=True)
        with pytest.raises(NotImplementedError, match="cache is what an earlier call returned"):
            denoiser(latents, cache=made)
