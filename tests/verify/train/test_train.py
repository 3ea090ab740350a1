"""The reference package, and deliberate mistakes, in verl-omni's own trainer on a CPU; ``VERL_OMNI_SRC`` names it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.algorithms import ALGORITHMS
from scaffold.grade.proof import name_of, proofs
from scaffold.verify.package import open_package
from scaffold.verify.request import VerifyRequest
from scaffold.verify.result import CheckResult
from scaffold.verify.rollout.environment import Environment, find_environment
from scaffold.verify.train.level import TrainRequest, run_level
from scaffold.verify.train.variants import VARIANTS

VERL_OMNI = os.environ.get("VERL_OMNI_SRC", "")
ENVIRONMENT = find_environment("0.27.0rc1")
pytestmark = [
    pytest.mark.skipif(not Path(VERL_OMNI, "verl_omni").is_dir(), reason="VERL_OMNI_SRC names no verl-omni checkout"),
    pytest.mark.skipif(not isinstance(ENVIRONMENT, Environment), reason=str(ENVIRONMENT)),
]
MISTAKES = Path(__file__).parent / "mistakes"
REWARD = 16  # steps that show it
NEWER = "0.30.0"  # of vllm-omni, which verl-omni's main does not pin
NEWER_PIPELINES = list(proofs()[NEWER])


def train(package: Path, request: TrainRequest) -> dict[str, CheckResult]:
    """Results by id; what is printed shows where a test fails."""
    outcome = run_level(VerifyRequest(open_package(package).folder, None, "train"), request, print)
    for check in outcome.checks:
        print(check.id, check.status, check.value, check.limit, check.reason)
    return {check.id: check for check in outcome.checks}


def failed(found: dict[str, CheckResult]) -> set[str]:
    return {name for name, check in found.items() if check.status == "fail"}


def request(**values: object) -> TrainRequest:
    return TrainRequest(**{"verl_omni": Path(VERL_OMNI), "steps": 3, **values})  # type: ignore[arg-type]


@pytest.mark.train
def test_reference_trains_three_steps(reference: Path) -> None:
    found = train(reference, request())
    assert failed(found) == set()
    assert {name for name, check in found.items() if check.status == "pass"} >= {
        "train-end",
        "train-gradient",
        "train-log-prob",
        "train-noise",
        "train-push",
        "train-ratio",
        "train-rollout-data",
        "train-validation",
        "train-worker-errors",
    }
    difference = found["train-log-prob"].value
    assert difference is not None
    assert difference <= 1e-6


@pytest.mark.train_table
@pytest.mark.parametrize("variant", [variant.name for variant in VARIANTS[1:]])
def test_reference_trains_in_every_variant(reference: Path, variant: str) -> None:
    assert failed(train(reference, request(variants=(variant,)))) == set()


@pytest.mark.train_table
def test_reward_of_the_reference_rises(reference: Path) -> None:
    found = train(reference, request(steps=REWARD))
    assert failed(found) == set()
    assert found["train-reward"].status == "pass"
    assert found["train-window"].status == "pass"


SEEN = {
    "weight_sync_dead": {"train-log-prob", "train-push"},
    "lora_not_folded": {"train-log-prob"},
    "guidance_off_in_training": {"train-log-prob"},
    "window_per_request": {"train-window"},
    "noise_shared_by_prompts": {"train-noise"},
}


@pytest.mark.train_table
@pytest.mark.parametrize("mistake", SEEN)
def test_mistake_is_seen(reference: Path, mistake: str) -> None:
    found = failed(train(reference, request(mistake=MISTAKES / f"{mistake}.py")))
    assert found >= SEEN[mistake]


@pytest.mark.train_table
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"changes": {"actor_rollout_ref.actor.optim.lr": "0.0"}}, {"train-push", "train-reward"}),
        ({"mistake": MISTAKES / "advantage_negated.py"}, {"train-reward"}),
    ],
    ids=["flat", "falls"],
)
def test_reward_that_does_not_rise_is_seen(reference: Path, change: dict[str, object], expected: set[str]) -> None:
    assert failed(train(reference, request(steps=REWARD, **change))) == expected


@pytest.mark.train_table
@pytest.mark.parametrize("proven", NEWER_PIPELINES)
def test_every_complete_package_of_a_newer_vllm_omni_trains(
    tmp_path: Path, scaffold_cli: Callable[..., Any], proven: str
) -> None:
    if isinstance(found := find_environment(NEWER), str):
        pytest.skip(found)
    pipeline, _, task = proven.partition(" ")
    name, more = name_of(proven), ("--task", task) if task else ()
    command = ("new", name, "--pipeline", pipeline, "--vllm-omni", NEWER, *more)
    scaffold_cli(*command, "--patch", "--out", tmp_path / "tree").success()
    results = train(tmp_path / "tree" / "verl_omni" / "pipelines" / f"{name}_flow_grpo", request())
    assert failed(results) == set()
    assert results["train-log-prob"].status == results["train-push"].status == "pass"


@pytest.fixture(scope="module")
def every_algorithm(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of diffusers' own class that is made for every algorithm."""
    if isinstance(found := find_environment(NEWER), str):
        pytest.skip(found)
    out = tmp_path_factory.mktemp("algorithms") / "tree"
    asked = [word for name in ALGORITHMS for word in ("--algorithm", name)]
    command = ("new", "flux", "--pipeline", "FluxPipeline", "--vllm-omni", NEWER, *asked, "--patch", "--out", out)
    scaffold_cli(*command).success()
    return out / "verl_omni" / "pipelines" / "flux_flow_grpo"


@pytest.mark.train_table
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains(every_algorithm: Path, name: str) -> None:
    found = train(every_algorithm, request(variants=(name,)))
    assert failed(found) == set()
    passed = {check for check, result in found.items() if result.status == "pass"}
    wanted = ("end", "push", "gradient", *(("log-prob", "ratio") if ALGORITHMS[name].scores_steps else ("beginning",)))
    assert passed >= {f"train-{name}-{check}" for check in wanted}


@pytest.mark.train_table
def test_hand_written_package_differs_under_the_same_command(tmp_path: Path, scaffold_cli: Callable[..., Any]) -> None:
    package = Path(VERL_OMNI, "verl_omni", "pipelines", "bagel_flow_grpo")
    if not package.is_dir():
        pytest.skip(f"{VERL_OMNI} holds no hand-written BAGEL")
    scaffold_cli(
        "new", "bagel_scaffold", "--pipeline", "BagelPipeline", "--patch", "--out", tmp_path / "tree"
    ).success()
    found = train(tmp_path / "tree", request(beside=package))
    assert failed(found) == set()
    series = found["train-log-prob"].series or {}
    own, other = series["log10 of the largest difference"], series["the same of bagel_flow_grpo"]
    assert len(own) == len(other) == 3
    assert max(own) <= -6
    assert min(other) >= -2
