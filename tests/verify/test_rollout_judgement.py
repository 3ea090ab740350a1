"""What passes and what fails: a comparison that sees nothing must not pass."""

from __future__ import annotations

import json
import math
import runpy
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from scaffold.files.documents import parse_json
from scaffold.verify.rollout.check import LOG_PROB, Check, Measurement, control, control_measurement
from scaffold.verify.rollout.judge import judge, judge_all
from scaffold.verify.rollout.level import check_ids
from scaffold.verify.rollout.scenario import all_checks, scenarios

CHECK = Check("rollout-example", "An example", 1e-6, "absolute")
STEPS = 5


@pytest.mark.parametrize(
    ("value", "status"),
    [(0.0, "pass"), (1e-6, "pass"), (1.1e-6, "fail"), (math.inf, "fail"), (math.nan, "fail"), (None, "fail")],
)
def test_only_a_number_within_the_limit_passes(value: float | None, status: str) -> None:
    assert judge(CHECK, Measurement(CHECK.id, value, "why")).status == status


def test_check_without_a_limit_fails_unless_one_was_measured() -> None:
    check = Check("rollout-floor", "Against a floor", None, "relative")
    assert judge(check, Measurement(check.id, 0.0, "no floor")).status == "fail"
    assert judge(check, Measurement(check.id, 1.0, "floor", floor=0.8, limit=1.2)).status == "pass"
    assert judge(check, Measurement(check.id, 1.3, "floor", floor=0.8, limit=1.2)).status == "fail"


def test_blind_control_fails() -> None:
    check = control("example", "a mistake")
    assert judge(check, control_measurement(check, 0.0)).status == "fail"
    assert judge(check, control_measurement(check, 29 * LOG_PROB)).status == "fail"
    assert judge(check, control_measurement(check, 31 * LOG_PROB)).status == "pass"
    assert judge(check, control_measurement(check, math.nan)).status == "fail"


def test_measurements_survive_their_way_between_processes() -> None:
    for value in (1e-7, math.inf, None):
        found = Measurement("rollout-example", value, "why", floor=math.inf, series={"a": [1.0]}, seconds=2.0)
        assert Measurement(**parse_json(json.dumps(asdict(found)))) == found


def test_what_was_not_measured_is_skipped_with_the_reason() -> None:
    (result,) = judge_all([CHECK], {}, "the process ended")
    assert (result.status, result.reason) == ("skip", "the process ended")


def test_ids_are_unique_and_every_scenario_declares_its_own() -> None:
    ids = check_ids()
    assert len(ids) == len(set(ids))
    assert all(name.startswith("rollout-") for name in ids)
    assert {check.id for check in all_checks()} < set(ids)
    assert {scenario.DTYPE for scenario in scenarios()} == {"float32", "bfloat16"}


def test_error_is_told_with_the_line_of_the_package(tmp_path: Path) -> None:
    from scaffold.verify.rollout.engine_side.main import describe_error

    (tmp_path / "adapter.py").write_text("import json\n\njson.loads('{')\n")
    with pytest.raises(ValueError, match="Expecting") as caught:
        runpy.run_path(str(tmp_path / "adapter.py"))
    told = describe_error(caught.value, str(tmp_path))
    assert told.startswith("JSONDecodeError: Expecting")
    assert told.endswith("(adapter.py:3)")
    assert "(decoder.py:" in describe_error(caught.value, "/elsewhere")
    outer = RuntimeError("no request goes through")
    outer.__cause__ = caught.value
    assert describe_error(outer, "/elsewhere", str(tmp_path)) == "RuntimeError: no request goes through (adapter.py:3)"


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def trajectory(torch, log_probs=STEPS, latents=STEPS + 1):
    from scaffold.verify.rollout.engine_side.trajectory import Trajectory

    return Trajectory(
        [1, 2, 3],
        latents=torch.zeros(latents, 4, 2),
        timesteps=torch.linspace(1, 0.2, STEPS),
        log_probs=torch.full((log_probs,), -0.5),
        velocities=[torch.ones(1, 4, 2)] * STEPS,
    )


def recomputed(torch, log_prob=-0.5, velocity=1.0):
    from scaffold.verify.rollout.engine_side.training import Recomputed

    return Recomputed(
        torch.full((1, STEPS), log_prob), [torch.full((1, 4, 2), velocity)] * STEPS, [torch.zeros(1, 4, 2)] * STEPS
    )


def compared(torch, sample, **other):
    from scaffold.verify.rollout.engine_side.comparison import compare

    return compare([sample], recomputed(torch, **other))


def test_equal_sides_differ_by_nothing(torch) -> None:
    found = compared(torch, trajectory(torch))
    assert (found.log_prob, found.velocity) == (0.0, 0.0)
    assert found.series == {"rollout log-prob": [-0.5] * STEPS, "training log-prob": [-0.5] * STEPS}


def test_differences_are_measured_at_the_worst_step(torch) -> None:
    found = compared(torch, trajectory(torch), log_prob=-0.75, velocity=0.5)
    assert found.log_prob == pytest.approx(0.25)
    assert found.velocity == pytest.approx(0.5)


def test_training_that_ignores_the_prompt_is_caught_by_its_control(torch) -> None:
    """Recomputing with a mistake gives what it gave without: the comparison is blind."""
    check = control("example", "a mistake")
    seen = compared(torch, trajectory(torch)).log_prob
    assert judge(check, control_measurement(check, seen)).status == "fail"


def test_nan_is_not_lost_among_other_steps(torch) -> None:
    sample = trajectory(torch)
    sample.log_probs[2] = math.nan
    assert math.isnan(compared(torch, sample).log_prob)


@pytest.mark.parametrize(("log_probs", "latents"), [(1, STEPS + 1), (0, STEPS + 1), (STEPS, STEPS)])
def test_trajectory_out_of_step_is_infinitely_wrong(torch, log_probs: int, latents: int) -> None:
    found = compared(torch, trajectory(torch, log_probs, latents))
    assert found.log_prob == math.inf
    assert found.problem


def test_joined_comparisons_keep_samples_apart(torch) -> None:
    from scaffold.verify.rollout.engine_side.comparison import join

    found = join([compared(torch, trajectory(torch)), compared(torch, trajectory(torch), log_prob=-0.6)])
    assert [step.sample for step in found.steps] == [0] * STEPS + [1] * STEPS
    assert found.where == "prompt 2, step 1"


def output(**fields):
    empty = {"error": None, "output": None, "custom_output": {}}
    names = ("trajectory_latents", "trajectory_timesteps", "trajectory_log_probs")
    return SimpleNamespace(**{**empty, **dict.fromkeys(names), **fields})


def test_both_forms_of_output_are_read(torch) -> None:
    from scaffold.verify.rollout.engine_side.trajectory import read_trajectory

    tensors = {"latents": torch.rand(1, 3, 4, 2), "timesteps": torch.rand(1, 2), "log_probs": torch.rand(1, 2)}
    extra = torch.rand(1, 7)
    older = read_trajectory(output(custom_output={**{f"all_{k}": v for k, v in tensors.items()}, "mask": extra}), [5])
    newer = read_trajectory(
        output(
            **{f"trajectory_{name}": value for name, value in tensors.items()},
            output={"payload": {}, "metadata": {"rl": {"mask": extra}}},
        ),
        [5],
    )
    for found in (older, newer):
        assert found.aligned
        assert torch.equal(found.latents, tensors["latents"][0])
        assert torch.equal(found.log_probs, tensors["log_probs"][0])
        assert torch.equal(found.extra["mask"], extra[0])


def test_output_without_a_trajectory_says_what_is_missing(torch) -> None:
    from scaffold.verify.rollout.engine_side.trajectory import read_trajectory

    with pytest.raises(RuntimeError, match="no latents and no timesteps"):
        read_trajectory(output(), [5])
    with pytest.raises(RuntimeError, match="the engine reports: out of memory"):
        read_trajectory(output(error="out of memory"), [5])


def test_a_step_whose_timestep_is_told_otherwise_is_found_by_its_sample(torch) -> None:
    from scaffold.verify.rollout.engine_side.recorder import StepTaken, step_of

    samples = [torch.randn(1, 4, 2) for _ in range(3)]
    taken = [StepTaken(1 - i / 4, 0.75 - i / 4, 1000 - 250.0 * i, s, s, s) for i, s in enumerate(samples)]
    assert step_of(taken, 750.0, samples[2][0]) is taken[1]
    assert step_of(taken, 0.31, samples[2][0]) is taken[2]
    assert step_of(taken, 0.31, torch.randn(4, 2)) is None
