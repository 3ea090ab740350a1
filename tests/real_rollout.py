"""Packages in the real vllm-omni: what level rollout says of one, and what docs/models.md says of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from scaffold.grade.proof import TOLERANCE, figures, figures_of
from scaffold.verify.request import VerifyRequest
from scaffold.verify.result import CheckResult
from scaffold.verify.rollout.environment import find_environment
from scaffold.verify.rollout.level import LIBRARY, check_ids, run_level

# Of packages that record calls of a denoiser, and of those for edits.
OF_OTHERS = {
    "rollout-control-cached-weights",
    "rollout-formula",
    "rollout-other-weights",
    "rollout-without-references-log-prob",
    "rollout-without-references-velocity",
}
# Of packages that blocks compose, which have a formula of guidance of their own.
OF_COMPOSED = {f"rollout-composed-{name}" for name in ("levels", "formula", "gradient")}
OF_COMPOSED |= {"rollout-control-composed-formula"}
# Of packages that are made for DiffusionNFT, and for DPO.
OF_NFT = {"rollout-control-forward-process", *(f"rollout-forward-process-{name}" for name in ("velocity", "clean"))}
OF_DPO = {*OF_NFT, "rollout-forward-process-between"}
OF_UPSTREAM = {"rollout-upstream-levels", "rollout-upstream-decode"}  # of packages with a loop of their own
# Where the engine's layers are not those of training, or no loop of upstream's gives latents.
PERHAPS = {"rollout-adapter-file", "rollout-upstream-levels"}
# Of packages that a person wrote.
OF_HAND = {*OF_DPO, *OF_UPSTREAM, "rollout-declared", "rollout-negative-prompt", "rollout-window-per-step"}
# With a checkout of verl-omni alone.
OF_CHECKOUTS = {"rollout-batch-v0", "rollout-row-v1", "rollout-row-mixed"}
LIMIT = 1e-6


def rolled(package: Path, version: str, *select: str) -> dict[str, CheckResult]:
    """Results by id; the test is skipped where the environment of this vllm-omni is not built."""
    if isinstance(found := find_environment(version), str):
        pytest.skip(found)
    request = VerifyRequest(package, level="rollout", select=select)
    return {result.id: result for result in run_level(request, version=version).checks}


def is_found(result: CheckResult) -> bool:
    """Whether a check fails, or is left out because the error that ends it is another's failure already."""
    return result.status == "fail" or (
        result.status == "skip" and result.reason.partition("; traceback")[0].endswith("fails by it")
    )


def assert_passes(
    results: Mapping[str, CheckResult], version: str, pipeline: str, skipped: Iterable[str] = OF_OTHERS
) -> None:
    """Every check of a composed package passes but those that it has no part in, and log-probs agree in float32."""
    assert set(results) == set(check_ids())
    other = {name: f"{r.value} {r.reason}" for name, r in results.items() if r.status != "pass"}
    expected = {*skipped, *OF_HAND, *PERHAPS, *(() if os.environ.get(LIBRARY) else OF_CHECKOUTS)}
    assert expected - PERHAPS <= other.keys() <= expected, other
    assert {results[name].status for name in other} == {"skip"}
    assert f"vllm-omni {version}" in results["rollout-engine-float32"].reason
    for name, result in results.items():
        if name.endswith("-log-prob") and "bf16" not in name and name not in other:
            assert result.value is not None
            assert result.value <= LIMIT, name
    assert_recorded(version, pipeline, results.values())


def assert_recorded(version: str, pipeline: str, checks: Iterable[CheckResult]) -> None:
    """Compare the figures of a run with those on record, where there are some.

    Machines round differently, so more than the record by a little is not a fault; a smaller difference is none either.
    """
    recorded = figures().get(version, {}).get(pipeline)
    if recorded is None or recorded.log_prob is None:
        return
    measured = figures_of([check.to_json() for check in checks]).log_prob
    told = f"run benchmarks/figures.py {pipeline} --vllm-omni {version}"
    assert measured is not None
    assert measured <= recorded.log_prob + TOLERANCE, told
