"""What docs/models.md says of a pipeline's log-probs is no less than what a run of the real rollout measures."""

from __future__ import annotations

from collections.abc import Iterable

from scaffold.grade.proof import TOLERANCE, figures, figures_of
from scaffold.verify.result import CheckResult


def assert_recorded(version: str, pipeline: str, checks: Iterable[CheckResult]) -> None:
    """Compare the figures of a run with those on record, where there are some.

    Machines round differently, so more than the record by a little is no fault; a smaller difference is none either.
    """
    recorded = figures().get(version, {}).get(pipeline)
    if recorded is None or recorded.log_prob is None:
        return
    measured = figures_of([check.to_json() for check in checks]).log_prob
    told = f"run benchmarks/figures.py {pipeline} --vllm-omni {version}"
    assert measured is not None
    assert measured <= recorded.log_prob + TOLERANCE, told
