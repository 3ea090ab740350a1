"""What float32 leaves of a log-prob of dance_sde where the noise level is low, and how steps are judged by it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from scaffold.verify.formulas import log_prob_limit, transition  # noqa: E402
from scaffold.verify.rollout.check import LOG_PROB, Measurement  # noqa: E402
from scaffold.verify.rollout.engine_side.recorder import StepTaken  # noqa: E402
from scaffold.verify.rollout.scenarios.noise import Sde, limited  # noqa: E402

NOISE = 0.7


def step(level: float, following: float) -> StepTaken:
    """A step as training scores it, from latents as large as a tiny model's."""
    generator = torch.Generator().manual_seed(0)
    sample, velocity, noise = (torch.randn(1, 64, generator=generator) * scale for scale in (100.0, 100.0, 1.0))
    mean, scale = transition("dance_sde", sample, velocity, (level, following, level), NOISE)
    return StepTaken(level, following, level, sample, velocity, sample, {}, (mean + scale * noise).float())


def test_only_dance_sde_at_a_low_level_is_allowed_more() -> None:
    low, high = step(0.001, 0.0), step(0.5, 0.3)
    assert log_prob_limit("dance_sde", LOG_PROB, low, NOISE) > 100 * LOG_PROB
    assert log_prob_limit("sde", LOG_PROB, low, NOISE) == LOG_PROB
    assert log_prob_limit("dance_sde", LOG_PROB, high, NOISE) < 1e-5


@pytest.mark.parametrize(("apart", "passes"), [([0.0, 5e-6], True), ([5e-5, 0.0], False), ([0.0, 1.0], False)])
def test_each_step_is_judged_by_its_own(apart: list[float], passes: bool) -> None:
    found = Measurement("rollout-dance-sde-log-prob", max(apart), "told")
    judged = limited(found, apart, [step(0.5, 0.3), step(0.001, 0.0)], NOISE)
    assert judged.value is not None
    assert judged.limit is not None
    assert (judged.value <= judged.limit) == passes
    assert "at level 0.001" in judged.reason


def test_a_trajectory_out_of_step_stays_one() -> None:
    found = limited(Measurement("x", float("inf"), "out of step"), [0.0], [step(0.001, 0.0)], NOISE)
    assert (found.value, found.limit) == (float("inf"), LOG_PROB)


def test_other_kinds_have_one_limit() -> None:
    limits = {check.id: check.limit for check in Sde.CHECKS if check.id.endswith("log-prob")}
    open_ended = {name for name, limit in limits.items() if limit is None}
    assert open_ended == {"rollout-dance-sde-log-prob"}
