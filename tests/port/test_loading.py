"""Rendered packages load a checkpoint as vllm-omni does, write it back, and send weights that the engine places.

One process builds and compares them all, in the real environment; a checkpoint is a module of ``checkpoints/``, which
writes the checkpoint's names by hand and loads them with vllm-omni's own classes.
"""

from __future__ import annotations

import ast
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import kit_root
from scaffold.grade.models_page import model_name
from scaffold.new import NewRequest, plan_new
from scaffold.spec import read_spec
from tests.engine_worker import answers, engine_version_is_there
from tests.port.case import CASES, cases

pytestmark = [pytest.mark.rollout, pytest.mark.slow, pytest.mark.upstream, pytest.mark.xdist_group("loading of ports")]
VERSION = "0.30.0"
ROOT = Path(__file__).resolve().parents[2]
CHECKPOINTS = sorted(Path(__file__).with_name("checkpoints").glob("*.py"))
# One of each kind of loader; the others are of `make rollout-table`.
KINDS = ("anima", "boogu", "lingbot_video", "longcat_avatar", "mammoth_moda2", "pi0")
LIMIT = 1e-5
# Their layers are computed by functions that are told a layer's number, not called.
CALLED = ("pi0", "pi05")


@cache
def results(kinds: bool) -> dict[str, dict[str, Any]]:
    """Return what the worker says of the checkpoints of all kinds, or of the others."""
    engine_version_is_there(VERSION)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contract = folder / "contract"
        contract.mkdir()
        # Beside the real engine, so without the kit's stand-in for that.
        for part in ("verl", "verl_omni", "omni_scaffold_kit"):
            (contract / part).symlink_to(kit_root() / part)
        tasks = [task(path, folder, contract) for path in CHECKPOINTS if (path.stem in KINDS) == kinds]
        return answers(VERSION, Path(__file__).with_name("loading_worker.py"), tasks, folder)


def task(path: Path, folder: Path, contract: Path) -> dict[str, Any]:
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if node.targets[0].id in ("PIPELINE", "CASE")
    }
    case = next(entry for entry in cases() if entry.name == values["CASE"])
    model = model_name(values["PIPELINE"])
    out = folder / path.stem
    plan_new(NewRequest(model, pipeline=values["PIPELINE"], vllm_omni=VERSION, out=str(out), patch=True)).plan.commit()
    package = out / "verl_omni" / "pipelines" / f"{model}_flow_grpo"
    held = read_spec(package / "scaffold.toml").spec.value("loading.attribute")
    return {
        "attribute": held,
        "root": str(ROOT),
        "contract": str(contract),
        "case": path.stem,
        "case_file": str(CASES / f"{case.name}.py"),
        "checkpoint_file": str(path),
        "module": case.module,
        "class": case.class_name,
        "package": str(package),
    }


@pytest.fixture(
    params=[
        pytest.param(path.stem, marks=[] if path.stem in KINDS else pytest.mark.rollout_table) for path in CHECKPOINTS
    ]
)
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the worker says of one checkpoint."""
    entry = results(request.param in KINDS)[request.param]
    assert "error" not in entry, f"{entry.get('error')}\n" + "\n".join(entry.get("at", []))
    return entry


def test_outputs_are_those_of_the_real_denoiser(found: dict[str, Any]) -> None:
    assert found["loaded"] <= LIMIT
    assert not found["weights"]
    assert not found["meta"]


def test_saving_writes_the_checkpoint_again(found: dict[str, Any]) -> None:
    assert not found["round_trip"]
    assert any(path.endswith(".safetensors") for path, _ in found["files"])
    assert [path for path, same in found["files"] if not same] == []


def test_the_engine_places_what_the_actor_sends(found: dict[str, Any]) -> None:
    assert found["before_sync"] > 1e-3
    assert found["synced"] <= LIMIT
    assert not found["left"]


def test_layers_are_recomputed_and_gradients_are_equal(found: dict[str, Any]) -> None:
    if found["case"] in CALLED:
        assert "recomputed" not in found  # `new` lists it as left to write
        return
    assert found["same_gradients"]
    assert found["gradients"] <= LIMIT
    assert found["recomputed"] > 0
    assert found["recomputed"] >= 0.5 * found["layers"]
