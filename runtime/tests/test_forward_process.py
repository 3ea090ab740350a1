"""DiffusionNFT and DPO: a rollout without noise, and its calls at clean latents that noise is added to."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_taped_calls import CONFIG, SHAPE, Denoiser, Module, guided, recorders, rolled_out

from flow_grpo_runtime.calls import COLUMN
from flow_grpo_runtime.forward_process import ForwardProcess, PairedForwardProcess, at_level
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.records import read_record

UNEVEN = [1.0, 0.8123, 0.5557, 0.3501, 0.0]


class Adapter(ForwardProcess):
    common = type("common", (), {"CALLS": CallPlan(stacked=True)})


class PairAdapter(PairedForwardProcess):
    common = Adapter.common


def clean(seed: int = 0, scale: float = 3.0, levels: list[float] = UNEVEN) -> tuple[Denoiser, dict[str, Any]]:
    denoiser = Denoiser()
    asked = {"noise_level": 0.0, "plain": True, "record_log_probs": False}
    return denoiser, rolled_out(recorders()[0], denoiser, scale=scale, seed=seed, levels=levels, **asked)


def predicted(
    denoiser: Denoiser, samples: list[dict[str, Any]], noisy: torch.Tensor, times: torch.Tensor, by: Any = Adapter
) -> Any:
    batch = {COLUMN: [sample["record"] for sample in samples]}
    module = Module(denoiser)
    given, other = by.prepare_model_inputs(module, CONFIG, noisy, times, None, None, None, None, batch, 0)
    assert other is None
    return by.forward(module, CONFIG, given, other)


def test_at_the_latents_of_the_rollout_training_predicts_its_velocities() -> None:
    denoiser, sample = clean()
    latents = sample["latents"]
    assert latents.shape == (1, 5, *SHAPE[1:])
    assert sample["log_probs"] is None
    for step in range(4):
        made = predicted(denoiser, [sample], latents[:, step], torch.tensor([1000 * UNEVEN[step]]))
        stepped = (latents[:, step + 1] - latents[:, step]) / (UNEVEN[step + 1] - UNEVEN[step])
        assert torch.allclose(made, stepped, rtol=0, atol=1e-5)
        assert not torch.allclose(made, -stepped, rtol=0, atol=1e-2)


def test_levels_that_the_trainer_rounds_down_are_those_of_the_calls() -> None:
    denoiser, sample = clean()
    other = clean(seed=1, scale=5.0)[1]
    noise = torch.randn(2, *SHAPE[1:], generator=torch.Generator().manual_seed(3))
    times = torch.tensor([1000 * UNEVEN[1], 1000 * UNEVEN[2]]).long()
    assert times.tolist() == [812, 555]
    level = times.view(-1, 1, 1) / 1000.0
    ends = torch.cat([one["latents"][:, -1] for one in (sample, other)])
    noisy = (1 - level) * ends + level * noise
    made = predicted(denoiser, [sample, other], noisy, times)
    for row, (scale, at) in enumerate(((3.0, 0.812), (5.0, 0.555))):
        expected = guided(denoiser, noisy[row : row + 1], at, scale, row)
        assert torch.allclose(made[row : row + 1], expected, rtol=0, atol=1e-5)
    made.sum().backward()
    assert denoiser.weight.grad is not None
    assert denoiser.weight.grad.abs() > 0


def test_pairs_are_predicted_at_any_level_that_their_scheduler_draws(tmp_path: Path) -> None:
    denoiser, sample = clean()
    scheduler = PairAdapter.build_scheduler(SimpleNamespace(local_path=str(tmp_path)))
    assert len(scheduler.timesteps) == 1000
    times = scheduler.timesteps[[0, 100, 400, 990]]
    ends = sample["latents"][:, -1].expand(4, *SHAPE[1:])
    noise = torch.randn(SHAPE, generator=torch.Generator().manual_seed(3)).expand_as(ends)
    noisy = scheduler.scale_noise(ends, times, noise)
    made = predicted(denoiser, [sample] * 4, noisy, times, PairAdapter)
    for row, level in enumerate((1.0, 0.9, 0.6, 0.01)):
        assert torch.allclose(noisy[row], (1 - level) * ends[row] + level * noise[row], rtol=0, atol=1e-6)
        expected = guided(denoiser, noisy[row : row + 1], level, 3.0, 0, until=0.0)
        assert torch.allclose(made[row : row + 1], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("stated", "middle"), [({"shift": 3.0}, 0.75), ({"shift": 3.0, "use_dynamic_shifting": True}, 0.5)]
)
def test_levels_of_pairs_are_shifted_as_the_release_says(tmp_path: Path, stated: dict[str, Any], middle: float) -> None:
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler/scheduler_config.json").write_text(json.dumps(stated))
    scheduler = PairAdapter.build_scheduler(SimpleNamespace(local_path=str(tmp_path)))
    assert float(scheduler.timesteps[500]) == pytest.approx(1000 * middle, abs=1e-3)


def test_a_pair_is_predicted_as_the_step_computes_that_passes_its_level() -> None:
    record = dict(read_record(clean()[1]["record"]))
    number, constants = record["tapes"][0]
    assert constants
    record["tapes"] = [(number, constants), *((number + 1, own) for _, own in record["tapes"][1:])]
    for level in (0.81, 0.5, 0.1):
        assert at_level(record, level, between=True)["tapes"][0][0] == number + 1
    with pytest.raises(ValueError, match=r"1 of 4 steps compute as at noise level 0\.900000, and 3 say how"):
        at_level(record, 0.9, between=True)
    few = clean(levels=[1.0, 0.5, 0.0])[1]
    with pytest.raises(ValueError, match="2 of 2 steps compute as at noise level 0.700000, and 3 say how"):
        at_level(read_record(few["record"]), 0.7, between=True)


def test_a_level_that_no_step_had_is_refused() -> None:
    sample = clean()[1]
    with pytest.raises(ValueError, match=r"noise level 0\.700000 is none of the rollout's"):
        at_level(read_record(sample["record"]), 0.7)


def test_a_time_that_is_no_line_over_the_levels_is_refused() -> None:
    record = dict(read_record(clean()[1]["record"]))
    kind, arguments = record["calls"][0]
    curved = ("each", [("same", torch.tensor(level**3)) for level in UNEVEN[:-1]])
    record["calls"] = [(kind, {**arguments, "time": curved}), *record["calls"][1:]]
    with pytest.raises(ValueError, match=r"the denoiser's time does not follow the noise level in a straight line"):
        at_level(record, 0.812)


def test_a_number_that_differs_between_two_steps_of_one_level_is_refused() -> None:
    record = dict(read_record(clean()[1]["record"]))
    record["levels"] = torch.tensor([0.8, 0.5557, 0.3501, 0.8, 0.0])
    with pytest.raises(ValueError, match=r"the denoiser's time differs between two steps of one noise level"):
        at_level(record, 0.8)


def test_what_does_not_say_the_calls_at_another_level_is_refused() -> None:
    record = read_record(clean()[1]["record"])
    kind, arguments = record["calls"][0]
    steps = len(UNEVEN) - 1

    def with_time(nodes: list[Any]) -> dict[str, Any]:
        return {**record, "calls": [(kind, {**arguments, "time": ("each", nodes)}), *record["calls"][1:]]}

    shapes = with_time([("same", torch.zeros(1 + step % 2)) for step in range(steps)])
    forms = with_time([("list", [("same", torch.tensor(0.5))])] * steps)
    refused = {
        "a part of the latents is given": {**record, "free": [torch.ones(SHAPE, dtype=torch.bool)] * steps},
        "the denoiser's time has another form in each step": forms,
        "the denoiser's time changes from step to step, and is no number": shapes,
    }
    for match, changed in refused.items():
        with pytest.raises(ValueError, match=match):
            at_level(changed, 0.812)


def test_a_window_of_steps_is_not_enough() -> None:
    denoiser = Denoiser()
    sample = rolled_out(recorders()[0], denoiser, window=(1, 3))
    with pytest.raises(ValueError, match="2 of 4 steps were recorded"):
        at_level(read_record(sample["record"]), 0.8)
