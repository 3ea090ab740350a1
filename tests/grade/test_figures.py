"""Figures of complete pipelines: what a report holds, what is kept of it, and what the pages say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.grade.models_page import VERSION
from scaffold.grade.proof import TOLERANCE, Figures, figures, figures_of, proofs

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "benchmarks" / "figures.py"


def check(name: str, level: str = "rollout", status: str = "pass", **values: Any) -> dict[str, Any]:
    return {"id": name, "level": level, "status": status, "value": None, "unit": None, "series": None, **values}


CHECKS = [
    check("rollout-sde-log-prob", value=6e-8, unit="absolute"),
    check("rollout-lora-log-prob", value=1.2e-7, unit="absolute"),
    check("rollout-bf16-log-prob", value=1e-4, unit="absolute, root mean square"),
    check("rollout-lora-velocity", value=3e-7, unit="relative"),
    check("rollout-log-probs", "contract", value=5e-7, unit="absolute"),
    check("fsdp2-nccl", "contract", "skip"),
]
TRAINED = [check("train-log-prob", "train", value=2e-7, unit="absolute", series={"log10": [-7.0, -6.9, -7.1]})]


def report(checks: list[dict[str, Any]], package: str = "omni_gen2_flow_grpo") -> dict[str, Any]:
    return {"package": package, "environment": {"vllm-omni": f"{VERSION} (rollout)"}, "checks": checks}


def test_what_a_report_holds() -> None:
    assert figures_of(CHECKS) == Figures(log_prob=1.2e-7, passed=5, skipped=1)
    velocity = check("rollout-sde-velocity", value=5e-7, unit="relative")
    assert figures_of([velocity]) == Figures(passed=1, skipped=0, velocity=5e-7)
    assert figures_of(TRAINED) == Figures(train_log_prob=2e-7, train_steps=3)
    assert figures_of([]) == Figures()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Figures that a test may change."""
    data = tmp_path / "figures.toml"
    data.write_text(f'["{VERSION}".OmniGen2Pipeline]\ntrain_steps = 16\n\n["0.1.0".Other]\npassed = 1\n')
    return data


def recorded(data: Path, found: dict[str, Any], proven: str = "OmniGen2Pipeline") -> subprocess.CompletedProcess[str]:
    file = data.with_name("report.json")
    file.write_text(json.dumps(found))
    arguments = [proven, "--report", str(file), "--file", str(data)]
    return subprocess.run([sys.executable, str(COMMAND), *arguments], capture_output=True, text=True)


def test_the_command_keeps_what_a_report_does_not_have(own: Path) -> None:
    assert recorded(own, report(CHECKS)).returncode == 0
    table = tomli.loads(own.read_text())
    assert table[VERSION]["OmniGen2Pipeline"] == {"log_prob": 1.2e-7, "passed": 5, "skipped": 1, "train_steps": 16}
    assert table["0.1.0"] == {"Other": {"passed": 1}}
    assert recorded(own, report(TRAINED)).returncode == 0
    table = tomli.loads(own.read_text())
    assert table[VERSION]["OmniGen2Pipeline"] == {
        "log_prob": 1.2e-7,
        "passed": 5,
        "skipped": 1,
        "train_log_prob": 2e-7,
        "train_steps": 3,
    }


def test_a_task_has_figures_of_its_own(own: Path) -> None:
    assert recorded(own, report(CHECKS), "OmniGen2Pipeline edit").returncode != 0
    assert recorded(own, report(CHECKS, "omni_gen2_edit_flow_grpo"), "OmniGen2Pipeline edit").returncode == 0
    table = tomli.loads(own.read_text())[VERSION]
    assert table["OmniGen2Pipeline"] == {"train_steps": 16}
    assert table["OmniGen2Pipeline edit"] == {"log_prob": 1.2e-7, "passed": 5, "skipped": 1}


@pytest.mark.parametrize(
    "found",
    [
        report([*CHECKS, check("sde-step", "contract", "fail")]),
        report(CHECKS, "boogu_image_flow_grpo"),
        {**report(CHECKS), "environment": {"vllm-omni": "0.28.0 (rollout)"}},
    ],
)
def test_what_is_no_proof_is_not_recorded(own: Path, found: dict[str, Any]) -> None:
    before = own.read_text()
    done = recorded(own, found)
    assert done.returncode != 0
    assert done.stderr.startswith("not recorded: ")
    assert own.read_text() == before


def test_every_complete_pipeline_has_figures() -> None:
    assert set(figures()[VERSION]) == set(proofs()[VERSION])
    for found in figures()[VERSION].values():
        assert found.log_prob is not None
        assert found.log_prob <= 1e-6 - TOLERANCE


def test_page_shows_them() -> None:
    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    for pipeline, found in figures()[VERSION].items():
        row = re.search(rf"^\| `{pipeline}` \| ([^|]*) \| ([^|]*) \| ([^|]*) \|", page, re.M)
        assert row is not None, pipeline
        assert float(row[1]) == pytest.approx(found.log_prob, rel=0.05)
        assert row[3] == (str(found.passed) if found.passed else "")
        trained = re.fullmatch(r"(\S+) in (\d+) steps", row[2])
        assert (trained is None) == (found.train_log_prob is None)
        if trained is not None:
            assert (float(trained[1]), int(trained[2])) == (
                pytest.approx(found.train_log_prob, rel=0.05),
                found.train_steps,
            )


def test_figures_of_training_are_those_of_whole_lives() -> None:
    lives = json.loads((ROOT / "docs/lives.json").read_text(encoding="utf-8"))
    checks = {name.removesuffix(f" {VERSION}"): found["checks"] for name, found in lives.items() if VERSION in name}
    said = {name: (3, found["train-log-prob"]["value"]) for name, found in checks.items()}
    kept = {
        key: (found.train_steps, found.train_log_prob)
        for key, found in figures()[VERSION].items()
        if found.train_log_prob is not None
    }
    assert said == kept
    page = (ROOT / "docs/train.md").read_text(encoding="utf-8")
    assert all(f"| {name} {VERSION} | passes |" in page for name in said)
