"""What level rollout says of a difference: the part in which the two sides part, and prompts of the data script."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from scaffold.files.resources import kit_root
from scaffold.verify.declared import Declared
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.rollout.engine_side import cause, data_script, main
from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
from scaffold.verify.rollout.engine_side.comparison import Comparison, compare
from scaffold.verify.rollout.engine_side.prompts import PromptForm
from scaffold.verify.rollout.engine_side.recipe import Recipe
from scaffold.verify.rollout.engine_side.recorder import StepTaken, step_at
from scaffold.verify.rollout.engine_side.training import Training, filled
from scaffold.verify.rollout.engine_side.trajectory import Trajectory
from scaffold.verify.rollout.scenarios import declared, row
from scaffold.verify.rollout.scenarios.guidance import NegativePrompt
from scaffold.verify.rollout.scenarios.noise import IndependentNoise, Window, WindowPerStep


def call(*rows: list[float], level: float = 0.5) -> Any:
    return cause._Call([torch.tensor(row) for row in rows], [level])


WITH, WITHOUT = [1.0, 2.0, 3.0], [2.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("training", "told"),
    [
        ([call(WITH), call(WITHOUT)], None),
        ([call(WITH), call(WITH)], "both branches of training predict the same"),
        ([call(WITH), call([5.0, 5.0, 5.0])], "one branch of training is the rollout's"),
        ([call([4.0, 4.0, 4.0], level=500.0), call([5.0, 5.0, 5.0])], "noise level as 0.5, training as 500"),
        ([call([4.0, 4.0, 4.0]), call([5.0, 5.0, 5.0])], "positions (RoPE), layers, weights"),
        ([call(WITH)], "2 predictions of its denoiser a step, training 1"),
    ],
)
def test_predictions_of_one_step_tell_where_the_sides_part(training: list[Any], told: str | None) -> None:
    found = cause._of_outputs([call(WITH), call(WITHOUT)], training)
    assert found is None if told is None else told in (found or "")


@pytest.mark.parametrize(
    ("scale", "told"), [(-3.0, "with and without the prompt are exchanged"), (2.0, "guides with 4, training with 2")]
)
def test_guidance_is_read_from_the_velocity(scale: float, told: str) -> None:
    one, other = torch.tensor(WITH), torch.tensor(WITHOUT)
    velocities = [other + factor * (one - other) for factor in (4.0, scale)]
    assert told in cause._of_guidance([call(WITH), call(WITHOUT)], *velocities)


def test_a_step_is_told_by_its_settings_and_by_what_it_scores() -> None:
    before, after = torch.zeros(1, 3), torch.ones(1, 3)
    rollout = StepTaken(0.9, 0.8, 900.0, before + 0.5, before, after, {"noise_level": 0.7})
    assert cause._of_step(rollout, replace(rollout, given=after)) is None
    assert "noise_level = 0.3" in str(cause._of_step(rollout, replace(rollout, asked={"noise_level": 0.3})))
    assert "the sample before the step" in str(cause._of_step(rollout, replace(rollout, given=before + 0.5)))
    assert "training's from 0.7" in str(cause._of_step(rollout, replace(rollout, sigma=0.7)))


@pytest.mark.parametrize(("timestep", "found"), [(900.0, 0), (0.8, 1), (850.0, None)])
def test_a_recorded_timestep_is_the_schedulers_or_the_noise_level(timestep: float, found: int | None) -> None:
    zero = torch.zeros(1)
    taken = [StepTaken(sigma, 0.0, 1000 * sigma, zero, zero, zero) for sigma in (0.9, 0.8)]
    assert step_at(taken, timestep) is (None if found is None else taken[found])


def test_embeddings_of_unlike_lengths_are_filled_behind() -> None:
    rows = filled([torch.ones(2, 3), torch.ones(4, 3), torch.tensor(1.0)])
    assert [row.shape for row in rows] == [(4, 3), (4, 3), ()]
    assert rows[0].sum(1).tolist() == [3.0, 3.0, 0.0, 0.0]


SCRIPT = """
import argparse, os, pandas
options = argparse.ArgumentParser()
options.add_argument("--input_dir"), options.add_argument("--output_dir")
given = options.parse_args()
lines = open(os.path.join(given.input_dir, "train.txt")).read().splitlines()
rows = [{"prompt": [{"role": "user", "content": f"draw {line.split(chr(34))[0]}"}]} for line in lines]
pandas.DataFrame(rows).to_parquet(os.path.join(given.output_dir, "train.parquet"))
"""


def test_prompts_are_those_of_the_data_script(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    script = tmp_path / "rows.py"
    script.write_text(SCRIPT, encoding="utf-8")
    rows = data_script.rows_of(script, ("a fox", "two cats"), tmp_path)
    assert [row["prompt"][0]["content"] for row in rows.values()] == [
        "draw a fox says ",
        "draw two cats says ",
    ]
    script.write_text(SCRIPT.replace('"prompt"', '"caption"'), encoding="utf-8")
    with pytest.raises(RuntimeError, match="with messages under 'prompt' for 2 texts"):
        data_script.rows_of(script, ("a fox", "two cats"), tmp_path)
    script.write_text("print()", encoding="utf-8")
    with pytest.raises(RuntimeError, match="takes no --input_dir"):
        data_script.rows_of(script, ("a fox",), tmp_path)


@pytest.mark.parametrize(
    ("begin", "told", "value"),
    [
        (lambda step, seed: float(step), "6 windows", 0.0),
        (lambda step, seed: float(seed), "requests of training step 1 begin their windows at timesteps 5.0, 6.0", 6.0),
        (lambda step, seed: 3.0, "begins at timestep 3.0 in each of 6 training steps", 6.0),
    ],
)
def test_windows_belong_to_a_training_step(begin: Any, told: str, value: float) -> None:
    def roll_out(recipe: Any, texts: Any, *, seed: int) -> list[Any]:
        return [SimpleNamespace(timesteps=torch.tensor([begin(recipe.global_steps, seed)]))]

    bench: Any = SimpleNamespace(
        table=object(), first=[SimpleNamespace(walked=6)], recipe=Recipe(8, 8), texts=("a", "b")
    )
    bench.roll_out = roll_out
    (found,) = WindowPerStep.measure(bench)
    assert (found.value, told in found.reason) == (value, True), found.reason


def test_an_error_fails_the_first_check_that_it_ends_and_no_other() -> None:
    checks = [Check(f"rollout-{name}", name, 0, None) for name in ("one", "two", "three")]

    def measure(bench: Any) -> Any:
        yield Measurement("rollout-one", 0.0, "fine")
        raise RuntimeError("the engine is gone")

    results = io.StringIO()
    bench: Any = SimpleNamespace(task=SimpleNamespace(root="/nowhere", package="a.b"))
    scenario: Any = SimpleNamespace(measure=measure, CHECKS=checks)
    told: dict[str, str] = {}
    main._measure(scenario, checks, bench, results, told)
    main._measure(SimpleNamespace(measure=measure, CHECKS=checks[2:]), checks[2:], bench, results, told)  # type: ignore[arg-type]
    found = [json.loads(line) for line in results.getvalue().splitlines()]
    assert [(one["check"], one["skipped"]) for one in found[:3]] == [
        ("rollout-one", False),
        ("rollout-two", False),
        ("rollout-three", True),
    ]
    assert "rollout-two fails by it" in found[3]["reason"]


@pytest.mark.parametrize(
    ("training", "rollout", "told"),
    [
        (0.8, 0.8, None),
        (0.5, 0.8, "set_timesteps is given mu = 0.5 in training and 0.8 in the rollout"),
        (None, 0.8, None),  # that side may bend its noise levels itself
        (0.5, None, None),
    ],
)
def test_a_shift_that_differs_shows_where_the_scheduler_ignores_it(
    training: float | None, rollout: float | None, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(kit_root()))
    from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

    def build_scheduler(config: Any) -> Any:
        scheduler = FlowMatchSDEDiscreteScheduler()
        scheduler.set_timesteps(sigmas=[1.0, 0.5], mu=training)
        return scheduler

    adapter: Any = SimpleNamespace(
        build_scheduler=build_scheduler,
        configure_train_mode=lambda module: None,
        prepare_model_inputs=lambda **_: ({}, None),
        forward_and_sample_previous_step=lambda **_: (torch.zeros(1), torch.zeros(1, 2)),
    )
    side = Training(SimpleNamespace(training=adapter), "", torch.float32, "ids", torch.nn.Identity())  # type: ignore[arg-type]
    monkeypatch.setattr(side, "config", lambda recipe: None)
    sample = Trajectory(
        [1], torch.zeros(3, 2), torch.tensor([1000.0, 500.0]), torch.zeros(2), [None] * 2, shift=rollout
    )
    found = compare([sample], side.recompute([sample], Recipe(8, 8)))
    assert found.problem == told
    assert (found.log_prob <= 1e-6) is (told is None)


@pytest.mark.parametrize(("short", "value"), [(0, 0.0), (1, 8.0)])
def test_each_range_gives_exactly_the_window_that_is_asked_for(short: int, value: float) -> None:
    schedule = torch.linspace(1, 0.1, 6)

    def roll_out(recipe: Recipe, texts: Any) -> list[Trajectory]:
        begin = (recipe.sde_window_range or (0, 6))[0]
        count = (recipe.sde_window_size or 6) - short
        times = schedule[begin : begin + count]
        return [
            Trajectory([1], torch.zeros(count + 1, 2), times, torch.zeros(count), [None] * count, sigmas=[None] * count)
        ]

    bench: Any = SimpleNamespace(
        first=[Trajectory([1], torch.zeros(7, 2), schedule, torch.zeros(6), walked=6)],
        recipe=Recipe(8, 8),
        texts=("a", "b"),
        roll_out=roll_out,
        compare=lambda samples, recipe: Comparison(()),
        equal=lambda pair, found: (),
    )
    found = next(Window.measure(bench))
    assert found.value == value, found.reason
    assert ("[4, 6): 1 steps" in found.reason or "[0, 2): 1 steps" in found.reason) is bool(short)
    assert ("a window of 3 anywhere: 2 steps" in found.reason) is bool(short)


def test_a_request_has_what_the_agent_loop_sends_whether_the_package_asks_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(kit_root()))
    recipe = Recipe(8, 8, guidance={"true_cfg_scale": 4.0}, whole=True)
    configured = {n: v for n, v in vars(recipe.pipeline_config()).items() if not n.startswith("_")}
    sent = recipe.sampling(7)
    assert configured.keys() <= sent.keys()
    assert "guidance_scale" in sent, "verl-omni sends its own default, whatever the package's is"
    assert sent["guidance_scale"] == configured["guidance_scale"]
    assert sent["true_cfg_scale"] == 4.0
    assert "guidance_scale" not in replace(recipe, whole=False).sampling(7)


class _Words:
    chat_template = None

    @staticmethod
    def encode(text: str, **_: Any) -> list[int]:
        return [ord(letter) for letter in text]


@pytest.mark.parametrize(
    ("velocity", "wrong"),
    [
        (lambda ids, before: sum(ids), None),
        (lambda ids, before: 0, "takes no notice of it"),
        (lambda ids, before: sum(ids) + len(before), "depends on the negative prompt of the one before it"),
    ],
)
@pytest.mark.parametrize("words", ["", "blurry"])
def test_another_negative_prompt_of_the_same_form_gives_another_velocity(
    velocity: Any, wrong: str | None, words: str
) -> None:
    texts = ("a fox", "two cats")
    rows = {text: {"prompt": [], "negative_prompt": [{"role": "user", "content": words}]} for text in texts}
    sent: list[list[int]] = [[]]

    def roll_out(recipe: Any, texts: Any) -> list[Any]:
        return [SimpleNamespace(velocities=[torch.tensor([float(velocity(sent[-1], sent[-2]))])])]

    @contextlib.contextmanager
    def of_request(ids: list[int]) -> Iterator[None]:
        sent.append(ids)
        yield

    bench: Any = SimpleNamespace(
        texts=texts,
        prompts=PromptForm(_Words(), None, None, False, False, rows=rows),
        recipe=Recipe(8, 8, guidance={"true_cfg_scale": 4.0}),
        neutral=1.0,
        roll_out=roll_out,
        engine=SimpleNamespace(negative_prompt=of_request),
    )
    (found,) = NegativePrompt.measure(bench)
    assert (found.value, (wrong or "two negative prompts") in found.reason) == (float(bool(wrong)), True), found.reason
    bench.recipe = Recipe(8, 8)
    with pytest.raises(NotApplicable, match="does not guide"):
        next(NegativePrompt.measure(bench))


def test_embeddings_of_one_length_are_told_by_what_the_rollout_hands_over() -> None:
    def bench(*lengths: int, width: int = 512) -> Any:
        first = [
            Trajectory(list(range(3 + n)), torch.zeros(2, 4, 8, 8), torch.ones(1), None, sigmas=[None])
            for n in range(len(lengths))
        ]
        for sample, length in zip(first, lengths, strict=True):
            sample.extra = {"prompt_embeds": torch.zeros(length, 5)}
        table = Declared(place="verify.toml", latents=(4, 8, 8), columns={"prompt_embeds": ("prompt", 5)})
        task = SimpleNamespace(facts={"embedded": width}, library=None)
        found: Any = SimpleNamespace(table=table, first=first, task=task)
        found.embedded = EngineUnderTest.embedded.fget(found)  # type: ignore[attr-defined]
        return found

    (fixed,), (ragged,) = (declared.measure(bench(*lengths)) for lengths in ((64, 64), (3, 4)))
    assert "columns.prompt_embeds has 'prompt', the rollout hands over 64 for all" in fixed.reason
    assert ragged.value == 0.0
    with pytest.raises(NotApplicable, match="every prompt is embedded in 64 tokens"):
        next(row.measure(bench(64, 64)))
    with pytest.raises(NotApplicable, match="fewer than the 65 that VeRL-Omni pads to"):
        next(row.measure(bench(64, 64, width=65)))
    measured = list(row.measure(bench(64, 64, width=64)))
    assert [found.check for found in measured] == [check.id for check in row.CHECKS]
    assert {found.reason.partition(":")[0] for found in measured} == {"the kit has no trainer"}, "and so it got there"


def test_noise_is_what_the_rollout_added_whatever_training_makes_of_the_mean() -> None:
    drawn = torch.Generator().manual_seed(5)
    latents = [torch.randn(4, 16, 64, generator=drawn) for _ in range(2)]
    samples = [Trajectory([1], rows, torch.ones(3), None, means=[0 * rows[:1]] * 3) for rows in latents]
    wrong = [samples[0].latents[:1] * 5] * 3  # one value in the means of all steps

    def measured(*samples: Trajectory) -> float:
        training = SimpleNamespace(recompute=lambda *_: SimpleNamespace(means=wrong))
        bench: Any = SimpleNamespace(roll_out=lambda *_: samples, training=training, recipe=None, texts=["a"])
        (found,) = IndependentNoise.measure(bench)
        return float(found.value or 0.0)

    assert measured(*samples) < IndependentNoise.LIMIT
    assert measured(*(replace(sample, means=[]) for sample in samples)) > IndependentNoise.LIMIT, (
        "training alone is left"
    )
    same = replace(samples[1], latents=samples[0].latents)
    assert measured(samples[0], same) > IndependentNoise.LIMIT, "one noise for both samples"
