"""Ported denoisers compute what the real ones do, in float32, with the same weights, in the real environment.

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

pytestmark = [pytest.mark.rollout, pytest.mark.slow, pytest.mark.upstream, pytest.mark.xdist_group("equality of ports")]
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
        tasks = [task(case, source, folder) for case in cases() if version in case.versions]
        return answers(version, Path(__file__).with_name("equality_worker.py"), tasks, folder)


def task(case: Case, source: Any, folder: Path) -> dict[str, Any]:
    port = port_denoiser(source, case.module, case.class_name, extra_methods=case.also)
    path = folder / f"{case.name}.py"
    path.write_text(port.source, encoding="utf-8")
    return {
        "root": str(ROOT),
        "cases": str(CASES),
        "case": case.name,
        "module": case.module,
        "class": case.class_name,
        "port": str(path),
        "entry": port.entry,
        "fused": [dataclasses.asdict(entry) for entry in port.fused],
    }


@pytest.mark.parametrize(
    ("version", "case"),
    [
        pytest.param(version, case, id=f"{case.name}-{version}", marks=[] if version == FIRST else TABLE)
        for case in cases()
        for version in case.versions
    ],
)
def test_port_computes_what_upstream_computes(version: str, case: Case) -> None:
    found = results(version)[case.name]
    assert "error" not in found, f"{found.get('error')}\n" + "\n".join(found.get("at", []))
    recorded = agreements().get(version, {}).get(LOOPS.get(case.name, ""))
    figure = recorded.module if recorded is not None else None
    assert max(found["differences"]) <= (LIMIT if figure is None else figure + TOLERANCE)
    assert min(found["largest"]) > 0.1  # an output of zeros would agree with anything
    # Gradients arrive at most parameters; the rest belongs to inputs that the case does not give.
    assert len(found["without_gradient"]) < 0.5 * found["parameters"]
