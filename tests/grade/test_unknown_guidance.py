"""What is unknown of guidance is never taken for not there: such a package is partial, and says what is left."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from scaffold.grade import COMPLETE, PARTIAL, grade_of, specify
from scaffold.inspect import Report, inspect_pipeline
from scaffold.inspect.facts import UNKNOWN
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream


@cache
def report(key: str) -> Report:
    return inspect_pipeline(locate("0.30.0"), key)


def grade(name: str, key: str, unknown: str | None) -> tuple[str, list[str]]:
    found = report(key)
    if unknown is not None:
        found = replace(found, facts={**found.facts, unknown: UNKNOWN})
    spec = specify(SpecRequest(found, derive_names(name), default_profile()), locate("0.30.0")).spec
    return str(grade_of(spec)), [entry["key"] for entry in spec.value("grade.missing") or []]


@pytest.mark.parametrize(("name", "key"), [("bagel", "BagelPipeline"), ("sensenova_u1", "SenseNovaU1Pipeline")])
def test_an_interval_that_is_unknown(name: str, key: str) -> None:
    assert grade(name, key, None) == (COMPLETE, [])
    value, missing = grade(name, key, "answers.cfg.interval")
    assert value == PARTIAL
    assert "guidance" in missing


@pytest.mark.parametrize("unknown", ["answers.cfg.branches", "answers.cfg.renorm", "detail.cfg.formula"])
def test_anything_else_that_decides(unknown: str) -> None:
    assert grade("bagel", "BagelPipeline", unknown)[0] == PARTIAL
