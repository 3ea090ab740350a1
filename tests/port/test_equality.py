"""Ported denoisers compute what the real ones do, in float32, with the same weights, in the real environment.

One process a version builds and compares them all; a case is a module of ``cases/``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scaffold.port import port_denoiser
from scaffold.upstream import locate
from scaffold.verify.rollout.environment import find_environment
from scaffold.verify.rollout.process import PASSED_ON, VARIABLES
from tests.port.case import CASES, Case, cases

pytestmark = [pytest.mark.rollout, pytest.mark.slow, pytest.mark.upstream]
LIMIT = 1e-5
ROOT = Path(__file__).resolve().parents[2]


@cache
def results(version: str) -> dict[str, dict[str, Any]]:
    """Return what the worker says of every case of a version."""
    import tempfile

    environment = find_environment(version)
    if isinstance(environment, str):
        pytest.skip(environment)
    source = locate(version)
    with tempfile.TemporaryDirectory() as folder:
        tasks = [task(case, source, Path(folder)) for case in cases() if version in case.versions]
        file = Path(folder) / "tasks.json"
        file.write_text(json.dumps(tasks), encoding="utf-8")
        found = subprocess.run(
            [str(environment.python), str(Path(__file__).with_name("equality_worker.py")), str(file)],
            env={**{name: os.environ[name] for name in PASSED_ON if name in os.environ}, **VARIABLES},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    lines = [line.removeprefix("RESULT ") for line in found.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, found.stderr[-2000:]
    return {entry["case"]: entry for entry in map(json.loads, lines)}


def task(case: Case, source: Any, folder: Path) -> dict[str, Any]:
    port = port_denoiser(source, case.module, case.class_name, also=case.also)
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
    [pytest.param(version, case, id=f"{case.name}-{version}") for case in cases() for version in case.versions],
)
def test_port_computes_what_upstream_computes(version: str, case: Case) -> None:
    found = results(version)[case.name]
    assert "error" not in found, f"{found.get('error')}\n" + "\n".join(found.get("at", []))
    assert max(found["differences"]) <= LIMIT
    assert min(found["largest"]) > 0.1  # an output of zeros would agree with anything
    # Gradients arrive at most parameters; the rest belongs to inputs that the case does not give.
    assert len(found["without_gradient"]) < 0.5 * found["parameters"]
