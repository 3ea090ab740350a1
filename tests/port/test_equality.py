"""Imported denoisers compute what the real ones do, in float32, with the same weights, in the real environment.

One process a version builds and compares them all; a case is a module of ``cases/``.
"""

from __future__ import annotations

import dataclasses
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scaffold.grade.proof import TOLERANCE, agreements
from scaffold.port import port_denoiser
from scaffold.upstream import locate
from tests.engine_worker import answers, engine_version_is_there
from tests.port.case import CASES, Case, cases

pytestmark = [
    pytest.mark.rollout,
    pytest.mark.slow,
    pytest.mark.upstream,
    pytest.mark.xdist_group("equality of denoisers"),
]
FIRST, TABLE = "0.30.0", pytest.mark.rollout_table
LIMIT = 1e-5
ROOT = Path(__file__).resolve().parents[2]
# Cases of denoisers whose pipelines docs/models.md has figures of.
LOOPS = {"auk": "AuKPipeline", "gr00t": "Gr00tN1d7Pipeline", "pi0": "Pi0Pipeline", "pi05": "Pi05Pipeline"}


@cache
def results(version: str) -> dict[str, dict[str, Any]]:
    """Return what the worker says of every case of a version."""
    engine_version_is_there(version)
    source = locate(version)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = [task_of(case, source) for case in cases() if version in case.versions]
        return answers(version, Path(__file__).with_name("equality_worker.py"), tasks, folder)


def task_of(case: Case, source: Any) -> dict[str, Any]:
    """The denoiser of a case."""
    port = port_denoiser(source, case.module, case.class_name, extra_methods=case.also)
    return {
        "root": str(ROOT),
        "cases": str(CASES),
        "case": case.name,
        "module": case.module,
        "class": case.class_name,
        "fused": [dataclasses.asdict(entry) for entry in port.fused],
        "version": source.version,
        "files": dict(port.executed),
        "apart": [(entry.owner, entry.name, entry.parts) for entry in port.fused],
        "checkpointed": port.checkpointed,
    }


@pytest.mark.parametrize(
    ("version", "case"),
    [
        pytest.param(version, case, id=f"{case.name}-{version}", marks=[] if version == FIRST else TABLE)
        for case in cases()
        for version in case.versions
    ],
)
def test_imported_denoiser_computes_what_upstream_computes(version: str, case: Case) -> None:
    found = results(version)[case.name]
    assert "error" not in found, f"{found.get('error')}\n" + "\n".join(found.get("at", []))
    recorded = agreements().get(version, {}).get(LOOPS.get(case.name, ""))
    figure = recorded.module if recorded is not None else None
    assert max(found["differences"]) <= (LIMIT if figure is None else figure + TOLERANCE)
    assert min(found["largest"]) > 0.1  # an output of zeros would agree with anything
    assert found["engine_imported"] == []
    # Gradients arrive at most parameters; the rest belongs to inputs that the case does not give.
    assert len(found["with_gradient"]) > 0.5 * len(found["parameters"])
    assert found["checkpointing"] <= LIMIT
    assert found["pickled"] <= max(found["differences"])
    assert found["lora_at_zero"] <= LIMIT
    assert found["lora_with_gradient"] > 0.5 * found["lora"]
