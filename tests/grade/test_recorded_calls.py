"""denoiser_calls.py of a partial package: what is recorded comes back as it was, and what cannot is refused."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from scaffold.grade import specify
from scaffold.inspect import inspect_pipeline
from scaffold.new import render_package
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
GUIDANCE = {"guidance_scale": 3.0}


@cache
def source() -> str:
    upstream = locate("0.30.0")
    report = inspect_pipeline(upstream, "OmniGen2Pipeline")
    graded = specify(SpecRequest(report, derive_names("omnigen2"), default_profile()), upstream)
    files, _ = render_package(graded.spec, [], None, graded.port)
    return next(file.content for path, file in files.items() if path.endswith("/denoiser_calls.py"))


def load_calls(monkeypatch: pytest.MonkeyPatch, right: str = "", wrong: str = "") -> types.ModuleType:
    """The rendered module; with one text of it replaced, where one is given."""
    import sys

    text = source()
    assert not right or text.count(right) == 1
    module = types.ModuleType("denoiser_calls")
    monkeypatch.setitem(sys.modules, "denoiser_calls", module)  # dataclasses look their module up
    exec(compile(text.replace(right, wrong) if right else text, "denoiser_calls.py", "exec"), module.__dict__)
    return module


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    return load_calls(monkeypatch)


class Denoiser(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, hidden_states: Any, time: torch.Tensor, *, text: Any, extra: Any = None) -> tuple[torch.Tensor]:
        hidden = torch.stack(hidden_states) if isinstance(hidden_states, list) else hidden_states
        shift = sum(t.mean() for t in text.values())
        return (self.weight * hidden * time.reshape(-1, *[1] * (hidden.ndim - 1)) + shift,)


def guide(conditional: torch.Tensor, unconditional: torch.Tensor | None) -> torch.Tensor:
    return conditional if unconditional is None else unconditional + 3.0 * (conditional - unconditional)


def walk(calls: types.ModuleType, call: Callable[..., torch.Tensor], steps: int = 3) -> tuple[bytes, list[Any], Any]:
    """Walk some steps; ``call`` calls the denoiser as a pipeline would and returns what it takes its step with."""
    recorder, denoiser, latents = calls.CallRecorder(), Denoiser(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    seen = []
    for step in range(steps):
        with torch.no_grad():
            velocity = call(denoiser, latents, step)
        assert torch.allclose(recorder.step(latents, velocity, guide, keep=True), velocity, atol=1e-5)
        seen.append((latents, velocity))
        latents = latents - 0.1 * velocity
    return recorder.finish(GUIDANCE), seen, denoiser


def replayed(calls: types.ModuleType, content: bytes, latents: torch.Tensor, step: int, denoiser: Any) -> torch.Tensor:
    both = [
        calls.DenoiserCalls(calls.read_calls([content]), latents, step, GUIDANCE, conditional=value).evaluate(
            denoiser, torch.float32
        )
        for value in (True, False)
    ]
    return guide(*both)


def text(length: int, seed: int) -> dict[str, torch.Tensor]:
    return {"embeds": torch.randn(1, length, 64, generator=torch.Generator().manual_seed(seed))}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_calls_come_back_whichever_is_first(calls: types.ModuleType, order: tuple[int, int]) -> None:
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


def test_branches_evaluated_as_a_batch_come_back(calls: types.ModuleType) -> None:
    prompt = text(5, 1)

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        doubled = list(torch.cat([latents, latents]).unbind())
        out = denoiser(doubled, torch.tensor([0.5, 0.25 + 0.1 * step]), text=prompt)[0]
        return guide(out[1:], out[:1])

    content, seen, denoiser = walk(calls, call)
    for step, (latents, velocity) in enumerate(seen):
        assert torch.allclose(replayed(calls, content, latents, step, denoiser), velocity, atol=1e-6)


def test_a_denoiser_that_doubles_its_sample_itself_is_called_for_each(calls: types.ModuleType) -> None:
    prompt = text(5, 1)

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        out = denoiser(latents, torch.tensor([0.5, 0.25 + 0.1 * step]), text=prompt)[0]
        return guide(out[1:], out[:1])

    content, seen, denoiser = walk(calls, call)
    for step, (latents, velocity) in enumerate(seen):
        assert torch.allclose(replayed(calls, content, latents, step, denoiser), velocity, atol=1e-6)
        both = calls.DenoiserCalls(calls.read_calls([content] * 2), latents.repeat(2, 1, 1), step, GUIDANCE)
        assert torch.equal(*both.evaluate(denoiser, torch.float32).split(1))


def test_a_step_without_the_unconditional_branch_has_none(calls: types.ModuleType) -> None:
    given = [text(4, 1), text(4, 2)]

    def call(denoiser: Any, latents: torch.Tensor, step: int) -> torch.Tensor:
        time = torch.tensor([0.5])
        made = [denoiser(latents, time, text=value)[0] for value in given[: 2 if step < 2 else 1]]
        return guide(made[0], made[1] if len(made) > 1 else None)

    content, seen, _ = walk(calls, call)
    counts = [
        len(calls.DenoiserCalls(calls.read_calls([content]), latents, step, GUIDANCE, conditional=False))
        for step, (latents, _) in enumerate(seen)
    ]
    assert counts == [1, 1, 0]


def test_arguments_in_the_dtype_of_the_weights_follow_them(calls: types.ModuleType) -> None:
    content, seen, _ = walk(calls, lambda d, x, _: d(x, torch.tensor([0.123456789]), text=text(2, 1), extra=7)[0])
    given: list[dict[str, Any]] = []

    def denoiser(**arguments: Any) -> torch.Tensor:
        given.append(arguments)
        return arguments["hidden_states"]

    calls.DenoiserCalls(calls.read_calls([content]), seen[0][0], 0, GUIDANCE).evaluate(denoiser, torch.bfloat16)
    assert given[0]["hidden_states"].dtype == given[0]["text"]["embeds"].dtype == torch.bfloat16
    assert given[0]["extra"] == 7


def test_a_call_under_autocast_is_made_under_it_again(calls: types.ModuleType) -> None:
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
    recorder.step(latents, velocity.float(), guide, keep=True)
    again = calls.DenoiserCalls(calls.read_calls([recorder.finish(GUIDANCE)]), latents, 0, GUIDANCE).evaluate(
        denoiser, torch.float32
    )
    assert torch.equal(again.float(), velocity.float())
    assert not torch.equal(denoiser(latents, torch.tensor([0.5])), velocity.float())  # it makes a difference


def test_what_cannot_be_carried_is_named(calls: types.ModuleType) -> None:
    class Cache:
        pass

    with pytest.raises(NotImplementedError, match="the denoiser's extra is a Cache"):
        walk(calls, lambda d, x, _: d(x, torch.tensor([0.5]), text=text(2, 1), extra=Cache())[0])


def test_another_velocity_than_training_computes_is_refused(calls: types.ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"guide\(\) does not make of them"):
        walk(calls, lambda d, x, _: 1.01 * d(x, torch.tensor([0.5]), text=text(2, 1))[0])
    with pytest.raises(RuntimeError, match="without calling its denoiser"):
        walk(calls, lambda d, x, _: x)


def test_calls_of_other_trajectories_are_refused(calls: types.ModuleType) -> None:
    content, seen, _ = walk(calls, lambda d, x, _: d(x, torch.tensor([0.5]), text=text(2, 1))[0])
    latents = seen[0][0]
    with pytest.raises(ValueError, match="2 samples for 1 trajectories"):
        calls.DenoiserCalls(calls.read_calls([content, content]), latents, 0, GUIDANCE)
    with pytest.raises(ValueError, match="step 3 is asked for"):
        calls.DenoiserCalls(calls.read_calls([content]), latents, 3, GUIDANCE)
    with pytest.raises(ValueError, match="was guided with"):
        calls.DenoiserCalls(calls.read_calls([content]), latents, 0, {"guidance_scale": 2.0})


def test_a_dictionary_is_what_it_was_before_the_call_filled_or_emptied_it(calls: types.ModuleType) -> None:
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
        recorder.step(latents, velocity, guide, keep=True)
    content = recorder.finish(GUIDANCE)
    seen = []
    denoiser.register_forward_pre_hook(lambda _, args, kwargs: seen.append(len(kwargs["cache"])), with_kwargs=True)
    for step in range(2):
        for _ in range(2):  # what one evaluation fills, the next does not see
            made = calls.DenoiserCalls(calls.read_calls([content]), latents, step, GUIDANCE, conditional=True)
            assert torch.equal(made.evaluate(denoiser, torch.float32), 2 * latents)
    assert seen == [0, 0, 0, 0]


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


def walk_cached(calls: types.ModuleType, given: Callable[[int], tuple[Any, Any]]) -> tuple[bytes, list[Any], Any]:
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
        recorder.step(latents, velocity, guide, keep=step > 0)  # the call that fills the caches is in no window
        seen.append((latents, velocity))
        latents = latents - 0.1 * velocity
    return recorder.finish(GUIDANCE), seen[1:], denoiser


@pytest.mark.parametrize("kind", CACHES)
def test_a_cache_that_a_call_fills_is_computed_anew(calls: types.ModuleType, kind: str) -> None:
    held = CACHES[kind](), CACHES[kind]()
    content, seen, denoiser = walk_cached(calls, lambda step: held)
    for step, (latents, velocity) in enumerate(seen):
        assert torch.allclose(replayed(calls, content, latents, step, denoiser), velocity, atol=1e-5)
    conditional = calls.DenoiserCalls(calls.read_calls([content]), seen[0][0], 0, GUIDANCE)
    first = conditional.evaluate(denoiser, torch.float32)
    assert torch.equal(conditional.evaluate(denoiser, torch.float32), first)
    # What is behind the cache alone: the replay sees its change, and its gradient.
    first.sum().backward()
    assert denoiser.keys.grad is not None
    assert denoiser.keys.grad.abs() > 0
    with torch.no_grad():
        denoiser.keys.add_(1.0)
        assert (conditional.evaluate(denoiser, torch.float32) - first).abs().max() > 1e-3


def test_one_cache_for_both_branches_is_reset_for_both(calls: types.ModuleType) -> None:
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
        recorder.step(latents, velocity, guide, keep=True)
        seen.append((latents, velocity))
        latents = latents - 0.1 * velocity
    content = recorder.finish(GUIDANCE)
    with torch.no_grad():
        denoiser.keys.add_(1.0)
    for step, (latents, velocity) in enumerate(seen):
        assert (replayed(calls, content, latents, step, denoiser) - velocity).abs().max() > 1e-3


def test_a_cache_that_every_step_adds_to_is_refused(calls: types.ModuleType) -> None:
    class Adding(Caching):
        def forward(self, hidden_states: torch.Tensor, *, text: torch.Tensor, cache: list) -> torch.Tensor:
            cache.append(self.keys * hidden_states)
            return self.weight * hidden_states + sum(entry.mean() for entry in cache)

    recorder, denoiser, latents, cache = calls.CallRecorder(), Adding(), torch.randn(1, 4, 6), []
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        velocity = denoiser(latents, text=torch.randn(1, 5), cache=cache)
        recorder.step(latents, velocity, guide, keep=True)
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
    calls: types.ModuleType, cache: Any, again: Callable[[Any], Any]
) -> None:
    cache = cache.clone() if isinstance(cache, torch.Tensor) else dict(cache)
    recorder, denoiser, latents = calls.CallRecorder(), Caching(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        velocity = denoiser(latents, text=torch.randn(1, 5), cache=cache)
        recorder.step(latents, velocity, guide, keep=True)
        with pytest.raises(NotImplementedError, match="made of the rollout's weights"):
            denoiser(latents, text=torch.randn(1, 5), cache=again(cache))


def test_an_argument_that_comes_back_or_lies_in_a_cache_stays_an_argument(calls: types.ModuleType) -> None:
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
            recorder.step(latents, velocity, guide, keep=True)
    content = recorder.finish(GUIDANCE)
    again = calls.DenoiserCalls(calls.read_calls([content]), latents, 1, GUIDANCE).evaluate(denoiser, torch.float32)
    assert torch.equal(again, velocity)


def test_what_a_call_returned_is_no_argument_of_the_next(calls: types.ModuleType) -> None:
    class Returning(Caching):
        def forward(self, hidden_states: torch.Tensor, *, cache: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
            made = self.keys * hidden_states if cache is None else cache
            return self.weight * hidden_states + made.mean(), made

    recorder, denoiser, latents = calls.CallRecorder(), Returning(), torch.randn(1, 4, 6)
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        velocity, made = denoiser(latents)
        recorder.step(latents, velocity, guide, keep=True)
        with pytest.raises(NotImplementedError, match="cache is what an earlier call returned"):
            denoiser(latents, cache=made)


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
    calls: types.ModuleType, seed: int, length: int, *, doubled: bool = False, table: torch.Tensor = TABLE
) -> tuple[bytes, torch.Tensor, list[torch.Tensor]]:
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
    recorder.step(latents, guide(*made), guide, keep=True)
    return recorder.finish(GUIDANCE), latents, made


def stacked(
    calls: types.ModuleType, samples: list[Any], conditional: bool = True
) -> tuple[torch.Tensor, list[tuple[int, ...]], torch.Tensor]:
    """What training computes of a batch, the calls that it makes and what the rollout saw."""
    recorded, latents = calls.read_calls([sample[0] for sample in samples]), torch.cat([s[1] for s in samples])
    denoiser = Counting()
    found = calls.DenoiserCalls(recorded, latents, 0, GUIDANCE, conditional=conditional)
    with torch.no_grad():
        made = found.evaluate(denoiser, torch.float32)
    return made, denoiser.seen, torch.cat([sample[2][0 if conditional else 1] for sample in samples])


@pytest.mark.parametrize("conditional", [True, False])
@pytest.mark.parametrize("doubled", [False, True])
def test_samples_of_one_shape_share_a_call_and_a_doubled_call_is_split(
    calls: types.ModuleType, doubled: bool, conditional: bool
) -> None:
    made, seen, expected = stacked(calls, [sampled(calls, i, 7, doubled=doubled) for i in range(1, 4)], conditional)
    assert torch.allclose(made, expected, atol=1e-6)
    assert seen == [(3, 3, 7, 5)]


def test_a_doubled_call_is_split_where_samples_do_not_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = load_calls(monkeypatch, "STACKED = True", "STACKED = False")
    made, seen, expected = stacked(alone, [sampled(alone, i, 7, doubled=True) for i in range(1, 4)])
    assert torch.allclose(made, expected, atol=1e-6)
    assert seen == [(1, 1, 7, 5)] * 3


def test_texts_of_other_lengths_are_padded_only_where_the_denoiser_takes_it(
    calls: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [sampled(calls, i, length) for i, length in ((1, 7), (2, 4), (3, 7), (4, 9))]
    made, seen, expected = stacked(calls, samples)
    assert torch.allclose(made, expected, atol=1e-6)
    assert sorted(seen) == [(1, 1, 4, 5), (1, 1, 9, 5), (2, 2, 7, 5)]
    padding = load_calls(monkeypatch, "PADDED = False", "PADDED = True")
    made, seen, expected = stacked(padding, samples)
    assert torch.allclose(made, expected, atol=1e-6)
    assert seen == [(4, 4, 9, 5)]


def test_another_table_is_another_call(calls: types.ModuleType) -> None:
    made, seen, expected = stacked(calls, [sampled(calls, 1, 7), sampled(calls, 2, 7, table=TABLE + 1)])
    assert torch.allclose(made, expected, atol=1e-6)
    assert seen == [(1, 1, 7, 5)] * 2


def test_a_table_that_training_computes_itself_is_not_carried(calls: types.ModuleType) -> None:
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
        recorder.step(latents, made, guide, keep=True)
        content = recorder.finish(GUIDANCE)
        assert (len(content) > large.numel() * 4) == carried
        replay = calls.DenoiserCalls(calls.read_calls([content, content]), latents.repeat(2, 1, 1), 0, GUIDANCE)
        with torch.no_grad():
            again = replay.evaluate(denoiser, torch.float32, {"rotary": [large, None]})
        assert torch.allclose(again, made.repeat(2, 1, 1), atol=1e-5)
        assert denoiser.seen[-1] == (2, 2, 7, 5)


def test_a_denoiser_that_does_not_predict_for_each_sample_is_told(calls: types.ModuleType) -> None:
    samples = [sampled(calls, i, 7) for i in (1, 2)]
    found = calls.DenoiserCalls(
        calls.read_calls([s[0] for s in samples]), torch.cat([s[1] for s in samples]), 0, GUIDANCE
    )
    with pytest.raises(RuntimeError, match="1 predictions for 2 samples: set STACKED to False"):
        found.evaluate(lambda x, **_: x[:1], torch.float32)


def test_ranks_with_other_texts_make_equally_many_calls(calls: types.ModuleType, tmp_path: Any) -> None:
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
