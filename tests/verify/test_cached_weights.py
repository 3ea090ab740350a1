"""The control that changes only weights behind a cache: it sees a replay that reads what the rollout cached."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from flow_grpo_runtime.calls import CallRecorder
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.records import read_record
from flow_grpo_runtime.replay import DenoiserCalls
from flow_grpo_runtime.values import same
from scaffold.verify.rollout.engine_side.recipe import Recipe
from scaffold.verify.rollout.scenarios import cached_weights


class Layers(torch.nn.Module):
    """The text's keys are made by a layer that the first call alone runs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.keys, self.out = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, latents: Any, text: Any, cache: dict[str, Any]) -> Any:
        if "keys" not in cache:
            cache["keys"] = self.keys(text)
        return self.out(latents) + cache["keys"].mean()


class Reading(CallRecorder):
    """Records what a cache holds after the first call in place of what it held before."""

    def _before(self, name: str, value: Any) -> tuple[Any, Any]:
        changed = self._changed.get(id(value))
        if changed is not None and same(changed.after, value):
            return changed.after, changed.after
        return super()._before(name, value)


class EngineUnderTest:
    """What the scenario asks of the real one, around a toy pipeline of six steps."""

    def __init__(self, recorder: type[CallRecorder]) -> None:
        self.recipe, self.texts = Recipe(64, 64, noise_level=0.7), ("a",)
        denoiser = Layers()
        self.engine = SimpleNamespace(pipeline=torch.nn.ModuleDict({"transformer": denoiser}))
        facts = {"class": "Layers", "method": "forward", "fused": [], "lora": ["keys", "out"]}
        self.task = SimpleNamespace(facts={"ported": facts})
        self.training = self
        self.module = Layers()
        self.recorder = recorder(CallPlan())
        self.recorder.watch(denoiser)

    def copy(self) -> EngineUnderTest:
        return self

    def roll_out(self, recipe: Recipe, texts: Sequence[str]) -> list[Any]:
        low, high = recipe.sde_window_range if recipe.sde_window_size else (0, 6)
        latents, text, cache = torch.ones(1, 4), torch.ones(1, 4), {}
        self.recorder.begin(active=True)
        for step in range(6):
            with torch.no_grad():
                velocity = self.engine.pipeline["transformer"](latents, text, cache)
            self.recorder.step(latents, velocity, keep=low <= step < high)
        self.latents, self.velocity = latents, velocity
        self.content = self.recorder.finish({})
        return [SimpleNamespace(timesteps=torch.ones(high - low))]

    def compare(self, samples: Sequence[Any], recipe: Recipe, *, training: EngineUnderTest) -> Any:
        replay = DenoiserCalls(CallPlan(), [read_record(self.content)], self.latents, 0)
        with torch.no_grad():
            found = replay.evaluate(training.module, torch.float32)
        return SimpleNamespace(log_prob=float((found - self.velocity).abs().max()))


@pytest.mark.parametrize("reads", [False, True])
def test_a_replay_that_reads_the_rollouts_cache_is_seen(reads: bool) -> None:
    (found,) = cached_weights.measure(EngineUnderTest(Reading if reads else CallRecorder))  # type: ignore[arg-type]
    assert "keys.weight" in found.reason
    assert found.value is not None
    assert (found.value > cached_weights.CHECK.limit) == reads


def test_without_a_cache_there_is_nothing_to_change() -> None:
    bench = EngineUnderTest(CallRecorder)
    bench.task.facts["ported"]["lora"] = ["out"]
    (found,) = cached_weights.measure(bench)  # type: ignore[arg-type]
    assert found.skipped


def test_names_of_fused_layers_are_those_of_their_parts() -> None:
    fused = [{"owner": "Attention", "name": "to_qkv", "parts": ["q", "k", "v"]}]
    names = cached_weights.plain_names({"blocks.0.attn.to_qkv", "blocks.0.norm"}, fused)
    assert names == {"blocks.0.attn.q", "blocks.0.attn.k", "blocks.0.attn.v", "blocks.0.norm"}
