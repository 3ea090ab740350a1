"""Every contract of level train on runs that are right and on runs that are wrong in one thing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scaffold.verify.train.contract import Training, contracts
from scaffold.verify.train.devices import CUDA, DEVICES, on_device
from scaffold.verify.train.exported import Exported
from scaffold.verify.train.level import _judge
from scaffold.verify.train.record import LOG_PROB, REWARD, Push, RunRecord, Step
from scaffold.verify.train.variants import VARIANTS, Variant, variants

STEPS = 16
WINDOWS = ((0.9, 0.75), (0.75, 0.5), (1.0, 0.9))


def step(number: int, gain: float = 0.002, **metrics: float) -> Step:
    reward = 0.5 + gain * number
    known = {
        REWARD: reward,
        LOG_PROB: 6e-8,
        "actor/grad_norm": 0.01,
        "actor/ratio_mean": 1.0000001,
        "actor/pg_clipfrac": 0.0,
        "actor/masked_fraction": 0.0,
        "actor/old_deviate": 1e-6 * (number - 1),
        "actor/dpo_loss": math.log(2.0) - 1e-3 * (number - 1),
        "timing_s/step": 15.0,
    }
    groups = tuple(reward + offset for offset in (-0.001, 0.0, 0.0005, 0.0005))
    prompts = tuple(f"{number} {index}" for index in range(4))
    return Step(number, {**known, **metrics}, groups, (WINDOWS[number % 3],) * 32, (0.9, 0.92), prompts)


def record(steps: int = STEPS, **metrics: float) -> RunRecord:
    taken = [step(number, **metrics) for number in range(1, steps + 1)]
    taken[-1] = replace(taken[-1], metrics={**taken[-1].metrics, "val-core/brightness/reward/mean@1": 0.5})
    pushes = tuple(Push(replica, 0, 14, None) for _ in range(steps + 1) for replica in "01")
    return RunRecord(None, tuple(taken), pushes, (), 300.0, samples={taking.number: 8 for taking in taken})


def right(variant: Variant = VARIANTS[0]) -> Training:
    flat = record(gain=0.0)
    resumed = RunRecord(None, (step(STEPS + 1),), (), (), 60.0)
    floor = record(STEPS + variant.resumes) if variant.floor else None
    if variant.algorithm == "dance_grpo":  # whose images of a prompt begin alike
        run = record()
        alike = tuple(replace(taken, closest=(0.0, 0.92)) for taken in run.steps)
        return Training(variant, STEPS, replace(run, steps=alike), flat, resumed, gain=0.03, floor=floor)
    return Training(variant, STEPS, record(), flat, resumed, gain=0.03, floor=floor, exported=used())


def used(**values: object) -> Exported:
    """An export that makes the same images, and is trained on."""
    begun = RunRecord(None, (step(1),), (), (), 60.0)
    return replace(Exported(None, 40, 60, begun, 0.001, 0.4), **values)  # type: ignore[arg-type]


def statuses(training: Training) -> dict[str, str]:
    found = [_judge(contract, training) for contract in contracts(training.variant)]
    return {result.id: result.status for result in found}


@pytest.mark.parametrize("name", variants())
def test_right_run_passes_every_contract(name: str) -> None:
    assert set(statuses(right(variants()[name])).values()) == {"pass"}


def test_images_of_a_prompt_that_begin_apart_are_seen_where_they_may_not() -> None:
    training = right(variants()["dance_grpo"])
    apart = closest(training, (0.9, 0.92))
    assert statuses(apart)["train-dance_grpo-noise"] == "fail"
    assert statuses(closest(training, (0.0, 0.0)))["train-dance_grpo-noise"] == "fail"


@pytest.mark.parametrize(
    ("name", "metric", "alike"), [("diffusion_nft", "actor/old_deviate", 0.0), ("dpo", "actor/dpo_loss", math.log(2.0))]
)
def test_a_policy_that_is_not_the_one_compared_with_is_seen(name: str, metric: str, alike: float) -> None:
    training = right(variants()[name])
    assert f"train-{name}-log-prob" not in statuses(training)
    assert statuses(changed(training, 0, **{metric: alike + 1e-3}))[f"train-{name}-beginning"] == "fail"
    still = replace(training, run=record(**{metric: alike}))
    assert statuses(still)[f"train-{name}-beginning"] == "fail"


def changed(training: Training, number: int, **metrics: float) -> Training:
    steps = list(training.run.steps)
    steps[number] = replace(steps[number], metrics={**steps[number].metrics, **metrics})
    return replace(training, run=replace(training.run, steps=tuple(steps)))


def with_run(training: Training, **values: Any) -> Training:
    return replace(training, run=replace(training.run, **values))


def windows(training: Training, of: Callable[[int], Any]) -> Training:
    steps = [replace(step, windows=of(step.number)) for step in training.run.steps]
    return with_run(training, steps=tuple(steps))


def closest(training: Training, of: tuple[float | None, float | None]) -> Training:
    steps = training.run.steps
    return with_run(training, steps=(*steps[:1], replace(steps[1], closest=of), *steps[2:]))


WRONG: dict[str, tuple[Callable[[Training], Training], set[str]]] = {
    "the script exits with 1 after its last step": (lambda t: with_run(t, problem="exit code 1"), {"train-end"}),
    "a step is missing": (lambda t: with_run(t, steps=t.run.steps[:-1]), {"train-end"}),
    "a difference": (lambda t: changed(t, 3, **{LOG_PROB: 2e-6}), {"train-log-prob"}),
    "a difference that was not logged": (lambda t: changed(t, 3, **{LOG_PROB: math.nan}), {"train-log-prob"}),
    "a worker's error": (lambda t: with_run(t, errors=("Error executing method",)), {"train-worker-errors"}),
    "no push": (lambda t: with_run(t, pushes=()), {"train-push"}),
    "a push that changed nothing": (
        lambda t: with_run(t, pushes=(*t.run.pushes[:-1], Push("1", 0, 0, None))),
        {"train-push"},
    ),
    "a push that failed": (lambda t: with_run(t, pushes=(*t.run.pushes[:-1], Push("1", 0, 3, "no"))), {"train-push"}),
    "a replica that gets none after the first": (
        lambda t: with_run(
            t, pushes=tuple(push for i, push in enumerate(t.run.pushes) if push.replica == "0" or i < 2)
        ),
        {"train-push"},
    ),
    "no gradient": (lambda t: changed(t, 0, **{"actor/grad_norm": 0.0}), {"train-gradient"}),
    "an infinite gradient": (lambda t: changed(t, 0, **{"actor/grad_norm": math.inf}), {"train-gradient"}),
    "a gradient that was not logged": (lambda t: changed(t, 0, **{"actor/grad_norm": math.nan}), {"train-gradient"}),
    "another policy": (lambda t: changed(t, 5, **{"actor/ratio_mean": 1.001}), {"train-ratio"}),
    "clipping": (lambda t: changed(t, 5, **{"actor/pg_clipfrac": 0.25}), {"train-ratio"}),
    "a window for each request": (
        lambda t: windows(t, lambda number: (WINDOWS[0],) * 31 + (WINDOWS[1],)),
        {"train-window"},
    ),
    "one window for all steps": (lambda t: windows(t, lambda number: (WINDOWS[0],) * 32), {"train-window"}),
    "one noise for two prompts": (lambda t: closest(t, (0.9, 0.1)), {"train-noise"}),
    "one noise for two images of a prompt": (lambda t: closest(t, (0.0, 0.9)), {"train-noise"}),
    "a flat reward": (lambda t: replace(t, run=record(gain=0.0)), {"train-reward"}),
    "a falling reward": (lambda t: replace(t, run=record(gain=-0.002)), {"train-reward"}),
    "a reward that rises without learning": (lambda t: replace(t, control=record()), {"train-reward"}),
    "an eighth of the reference": (lambda t: replace(t, gain=0.2), {"train-reward"}),
    "images of one step are not kept": (
        lambda t: with_run(t, samples={1: 8} | dict.fromkeys(range(3, STEPS + 1), 8)),
        {"train-rollout-data"},
    ),
    "no validation": (lambda t: with_run(t, steps=tuple(map(step, range(1, STEPS + 1)))), {"train-validation"}),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_run_fails_its_contract(mistake: str) -> None:
    change, expected = WRONG[mistake]
    found = statuses(change(right()))
    assert {name for name, status in found.items() if status == "fail"} == expected


def rounded(variant: str, *floors: float) -> Training:
    """A right run of three steps beside one whose differences are rounding alone, that after a checkpoint included."""
    floors += floors[2:] if variants()[variant].resumes else ()
    steps = tuple(step(number, **{LOG_PROB: floor}) for number, floor in enumerate(floors, 1))
    training = right(variants()[variant])
    return replace(
        training, steps=3, run=replace(record(3), pushes=training.run.pushes[:8]), floor=replace(record(3), steps=steps)
    )


@pytest.mark.parametrize("variant", ["full", "bf16"])
def test_limit_is_what_rounding_costs_in_the_same_step(variant: str) -> None:
    training, check = rounded(variant, 2e-5, 3e-4, 2e-5), f"train-{variant}-log-prob"
    assert statuses(changed(training, 1, **{LOG_PROB: 8.9e-4}))[check] == "pass"
    assert statuses(changed(training, 1, **{LOG_PROB: 9.1e-4}))[check] == "fail"
    assert statuses(changed(training, 2, **{LOG_PROB: 3e-4}))[check] == "fail"
    assert statuses(replace(training, floor=None))[check] == "skip"
    assert statuses(rounded(variant, 2e-5, 3e-4))[check] == "skip"
    assert statuses(rounded(variant, 2e-5, math.nan, 2e-5))[check] == "skip"
    assert statuses(rounded(variant, 0.0, 0.0, 0.0))[check] == "pass"


@pytest.mark.parametrize(
    "resumed", [None, RunRecord("it died", (), (), (), 1.0), RunRecord(None, (step(1),), (), (), 1.0)]
)
def test_resume_that_did_not_go_on(resumed: RunRecord | None) -> None:
    training = replace(right(VARIANTS[0]), resumed=resumed)
    assert statuses(training)["train-log-prob-after"] == ("skip" if resumed is None else "fail")


@pytest.mark.parametrize(("value", "status"), [(2.9e-4, "pass"), (3.1e-4, "fail")])
def test_limit_of_the_resumed_step_is_what_rounding_costs_in_it(value: float, status: str) -> None:
    taken = replace(step(4), metrics={**step(4).metrics, LOG_PROB: value})
    known = replace(rounded("bf16", 2e-5, 3e-4, 2e-5, 1e-4), resumed=RunRecord(None, (taken,), (), (), 1.0))
    training, check = (
        replace(known, variant=on_device(VARIANTS[0], DEVICES[CUDA])),
        "train-log-prob-after",
    )
    assert statuses(training)[check] == status
    assert statuses(replace(training, floor=rounded("bf16", 2e-5, 3e-4, 2e-5).floor))[check] == "skip"


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (None, "skip"),
        (used(problem="none of 60 tensors differs from the release"), "fail"),
        (used(run=RunRecord("it died", (), (), (), 1.0)), "fail"),
        (used(run=RunRecord(None, (replace(step(1), metrics={LOG_PROB: 1e-3}),), (), (), 1.0)), "fail"),
        (used(apart=0.06), "fail"),
        (used(apart=None, untrained=None), "skip"),
        (used(apart=0.03, untrained=0.05), "skip"),
    ],
)
def test_an_export_that_is_not_what_was_trained(found: Exported | None, status: str) -> None:
    assert statuses(replace(right(), exported=found))["train-export"] == status


def test_resumed_run_that_repeats_data() -> None:
    training, check = right(VARIANTS[0]), "train-data-after"
    again = replace(
        training, resumed=RunRecord(None, (replace(step(STEPS + 1), prompts=("3 1", "x", "y", "z")),), (), (), 1.0)
    )
    assert statuses(again)[check] == "fail"
    other = [replace(found, prompts=("a", "b")) for found in training.run.steps]
    assert statuses(with_run(training, steps=tuple(other)))[check] == "skip"


def test_an_old_policy_that_samples_is_pushed_anew_every_second_step() -> None:
    training = right(variants()["diffusion_nft"])
    pushes = training.run.pushes

    def changed_by(step: Callable[[int], bool]) -> str:
        """Pushes of two replicas, the first pair before the first step."""
        kept = tuple(replace(push, changed=14 * step(index // 2)) for index, push in enumerate(pushes))
        return statuses(with_run(training, pushes=kept))["train-diffusion_nft-push"]

    assert changed_by(lambda number: number % 2 == 0) == "pass"
    assert changed_by(lambda number: number % 2 == 0 and number != 6) == "fail"
    assert changed_by(lambda number: number % 2 == 1) == "fail"
    short = replace(training, run=replace(training.run, steps=training.run.steps[:1]))
    assert statuses(short)["train-diffusion_nft-push"] == "skip"


def test_asynchronous_log_probs_are_those_without_updates_and_idle_engines_need_no_push() -> None:
    training = right(variants()["async"])
    late = changed(training, 3, **{LOG_PROB: 1e-2})
    assert set(
        statuses(
            with_run(late, pushes=tuple(replace(p, changed=p.changed * (p.replica == "1")) for p in late.run.pushes))
        ).values()
    ) == {"pass"}
    assert training.floor is not None
    rounded = changed(replace(training, run=training.floor), 3, **{LOG_PROB: 1e-2}).run
    assert statuses(replace(training, floor=rounded))["train-async-log-prob"] == "fail"
    assert statuses(replace(training, floor=None))["train-async-log-prob"] == "skip"
    dead = tuple(replace(p, changed=p.changed * (p.replica == "0")) for p in training.run.pushes)
    assert statuses(with_run(training, pushes=dead))["train-async-push"] == "fail"


def test_few_steps_skip_what_they_cannot_show() -> None:
    after = RunRecord(None, (step(4),), (), (), 60.0)
    few = windows(
        Training(VARIANTS[0], 3, record(3), resumed=after, exported=used()), lambda number: (WINDOWS[0],) * 32
    )
    found = statuses(few)
    assert {name for name, status in found.items() if status == "skip"} == {"train-reward", "train-window"}


def test_no_step_at_all_fails_and_skips_the_rest() -> None:
    found = statuses(Training(VARIANTS[0], 3, RunRecord("it died", (), (), (), 1.0)))
    assert found.pop("train-end") == "fail"
    assert found.pop("train-worker-errors") == "pass"
    assert set(found.values()) == {"skip"}
