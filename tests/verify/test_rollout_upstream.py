"""A package with a loop of its own against upstream's: its noise levels, and the picture of its last latents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from scaffold.verify.rollout.check import Measurement, NotApplicable  # noqa: E402
from scaffold.verify.rollout.engine_side import recorder  # noqa: E402
from scaffold.verify.rollout.engine_side.recorder import StepTaken  # noqa: E402
from scaffold.verify.rollout.scenarios import upstream  # noqa: E402

SHIFT, STEPS = 3.0, 5
# A pipeline as vllm-omni has them, and a package's adapter with a loop of its own.
UPSTREAM = """
import torch
from torch import nn


class Euler:
    def set_timesteps(self, sigmas, shift):
        self.sigmas = [shift * s / (1 + (shift - 1) * s) for s in sigmas] + [0.0]
        self.index = 0

    def step(self, model_output, timestep, sample, return_dict=True):
        self.index += 1
        moved = sample + (self.sigmas[self.index] - self.sigmas[self.index - 1]) * model_output
        return (moved,)


class Net(nn.Module):
    def forward(self, hidden, timestep):
        return (0.5 * hidden.roll(1, -1) + timestep).sin()


class Pipeline(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.mean, self.std = Net(), 0.7, 3.0
        self.scheduler = Euler()

    def levels(self):
        sigmas = [1 - i / STEPS for i in range(STEPS)]
        self.scheduler.set_timesteps(sigmas, SHIFT)
        return self.scheduler.sigmas[:-1]

    def decode(self, latents):
        return (latents * self.std + self.mean).tanh()

    def forward(self, text):
        if text is None:
            raise ValueError("a prompt is text")
        x = torch.linspace(-1, 1, 12).view(1, 3, 4)
        for t in self.levels():
            x = self.scheduler.step(self.net(x, torch.tensor([t])), t, x, return_dict=False)[0]
        return self.decode(x)
"""
ADAPTER = """
import torch
from upstream_of_toy import Euler, Pipeline


class Adapter(Pipeline):
    def __init__(self):
        super().__init__()
        self.scheduler = Euler()

    def forward(self, text):
        x = torch.linspace(1, -2, 12).view(1, 3, 4)
        for t in self.levels():
            v = self.net(x, torch.tensor([t]))
            x = self.scheduler.step(v, t, x)[0] + 0.1
            TAKEN.append(x)
        return {"payload": {"image": self.decode(x)}, "metadata": {}}
"""
TWICE = """
    def levels(self):
        sigmas = [SHIFT * s / (1 + (SHIFT - 1) * s) for s in (1 - i / STEPS for i in range(STEPS))]
        self.scheduler.set_timesteps(sigmas, SHIFT)
        return self.scheduler.sigmas[:-1]
"""
RAW = """
    def decode(self, latents):
        return latents.tanh()
"""
FEWER = """
    def levels(self):
        return super().levels()[:-1]
"""


def module(name: str, text: str, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Any:
    made = ModuleType(name)
    vars(made).update(given)
    monkeypatch.setitem(__import__("sys").modules, name, made)
    exec(compile(text, f"{name}.py", "exec"), vars(made))
    return made


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that measures an adapter with more methods."""

    def run(more: str = "", adapter: str = ADAPTER, facts: dict[str, Any] | None = None) -> dict[str, Measurement]:
        taken: list[Any] = []
        numbers = {"SHIFT": SHIFT, "STEPS": STEPS}
        above = module("upstream_of_toy", UPSTREAM, monkeypatch, **numbers)
        own = module("toy_flow_grpo.rollout", adapter + more, monkeypatch, TAKEN=taken, **numbers)

        @contextmanager
        def steps() -> Iterator[list[StepTaken]]:
            found: list[StepTaken] = []
            taken.clear()
            yield found
            found += [StepTaken(0.0, 0.0, 0.0, x, x, x) for x in taken]

        monkeypatch.setattr(recorder, "steps", steps)
        engine = SimpleNamespace(negative=None)

        def load() -> None:
            engine.pipeline = own.Adapter()

        def answer(ids: Any, sampling: Any, *, text: str | None = None) -> Any:
            return SimpleNamespace(output=engine.pipeline(text), error=None)

        load()
        engine.load, engine.answer, engine.finished = load, answer, lambda output: output
        bench = SimpleNamespace(
            task=SimpleNamespace(facts=facts or {}, package="toy_flow_grpo"),
            adapters=SimpleNamespace(upstream=above.Pipeline),
            prompts=SimpleNamespace(negative=lambda text: None, chat=lambda text: [1]),
            recipe=SimpleNamespace(sampling=lambda seed: {}),
            engine=engine,
            texts=["a fox"],
        )
        before = engine.pipeline
        found = {one.check: one for one in upstream.measure(bench)}  # type: ignore[arg-type]
        assert type(engine.pipeline) is own.Adapter is type(before)
        return found

    return run


def test_a_sound_loop_agrees(measured: Any) -> None:
    levels, picture = measured().values()
    assert levels.value < upstream.LEVELS.limit
    assert not levels.skipped
    assert picture.value < upstream.PICTURE.limit
    assert not picture.skipped


def test_a_shift_that_both_sides_apply_twice_is_found(measured: Any) -> None:
    found = measured(TWICE)[upstream.LEVELS.id]
    assert found.value > 0.1
    assert "net is told 1, 0.973, 0.931, 0.8571, 0.6923, in Pipeline 1, 0.9231" in found.reason


def test_another_number_of_levels_is_found(measured: Any) -> None:
    found = measured(FEWER)[upstream.LEVELS.id]
    assert (found.value, found.skipped) == (None, False)
    assert "4 levels in place of 5" in found.reason


def test_latents_that_are_not_denormalised_are_found(measured: Any) -> None:
    found = measured(RAW)[upstream.PICTURE.id]
    assert found.value > 5 * upstream.PICTURE.limit
    assert "a picture that Pipeline's decode does not make" in found.reason


def test_what_cannot_be_compared_says_why(measured: Any) -> None:
    with pytest.raises(NotApplicable, match="upstream's own loop"):
        measured(facts={"ported": {"entry": "x"}})
    own = ADAPTER.replace(
        "super().__init__()", "torch.nn.Module.__init__(self); self.net = __import__('torch').nn.Identity()"
    )
    with pytest.raises(NotApplicable, match=r"the package alone makes the pipeline's scheduler"):
        measured(adapter=own.replace("        v = self.net(x, torch.tensor([t]))", "        v = x"), more=RAW)
    constant = RAW.replace("latents.tanh()", "0 * latents + 1")
    flat = UPSTREAM.replace("(latents * self.std + self.mean).tanh()", "0 * latents + 1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(globals(), "UPSTREAM", flat)
        found = measured(constant)[upstream.PICTURE.id]
    assert found.skipped
    assert "other latents move the tiny autoencoder's picture by 0 alone" in found.reason
