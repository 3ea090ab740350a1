"""What ``benchmarks/gpu_tables.py`` makes of runs, on a machine without a GPU."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scaffold.verify.train.record import LOG_PROB, REWARD, RunRecord, Step

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def tables(python_file: Callable[[Path, str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return python_file(BENCHMARKS / "gpu_tables.py", "gpu_tables")


def steps(tables: Any, differences: list[float]) -> tuple[Step, ...]:
    rows = enumerate(differences, start=1)
    kept = {tables.CLIPPED: 0.25}
    return tuple(
        Step(n, {REWARD: 0.5 + n / 100, LOG_PROB: value, tables.MEAN: value / 10, **kept}) for n, value in rows
    )


def test_run_that_ended_early_is_told_by_its_cause_and_one_without_differences_by_its_reward(tables: Any) -> None:
    whole = RunRecord(None, steps(tables, [1e-4, 8e-4, 2e-4, 2e-4]), (), (), 1.0)
    assert tables._learned(whole, 4) == "0.5100 to 0.5400 (+0.0300) | 8.0e-04 | 1.0e-05 to 8.0e-05"
    bypass = RunRecord("the script says no", steps(tables, [math.nan] * 4), (), (), 1.0)
    assert tables._learned(bypass, 4) == "0.5100 to 0.5400 (+0.0300) | not logged, up to 25% of a step clipped |"
    short = RunRecord("the run was stopped", steps(tables, [1e-4]), (), (), 1.0)
    assert tables._learned(short, 4).startswith("the run was stopped |")


def test_kernels_of_attention_are_no_matrix_products(python_file: Callable[[Path, str], Any]) -> None:
    kind_of = python_file(BENCHMARKS / "rollout_profile.py", "rollout_profile").kind_of
    assert kind_of("fmha_cutlassF_bf16_aligned_64x128") == "attention"
    assert kind_of("nvjet_sm90_tst_256x128") == "other matrix products"
    assert kind_of("mot_unified_gemm_kernel") == "MoT matrix products (Triton)"
    assert kind_of("triton_poi_fused_mul_silu_slice_0") == "elementwise and others"


def test_weights_have_names_and_shapes_of_the_manifest(python_file: Callable[[Path, str], Any], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.torch").load_file
    shapes = {"layers.0.norm.weight": [4096], "layers.0.mlp.weight": [64, 32], "layers.0.mlp.bias": [64]}
    python_file(BENCHMARKS / "real_checkpoint.py", "real_checkpoint").write_weights(tmp_path / "w.safetensors", shapes)
    found = load_file(tmp_path / "w.safetensors")
    assert {name: list(value.shape) for name, value in found.items()} == shapes
    assert all(value.dtype == torch.bfloat16 and value.isfinite().all() for value in found.values())
    assert abs(float(found["layers.0.norm.weight"].float().mean()) - 1) < 0.05
    assert float(found["layers.0.mlp.weight"].float().std()) == pytest.approx(0.02, rel=0.2)


def test_so_many_layers_are_recomputed_in_the_tree_that_is_trained_in(tables: Any, tmp_path: Path) -> None:
    package = SimpleNamespace(module="verl_omni.pipelines.bagel_flow_grpo", spec={"names": {"model": "bagel"}})
    reference = Path(__file__).resolve().parents[2] / "reference_bagel"
    shutil.copytree(reference, tmp_path / "tree")
    tables.recompute(SimpleNamespace(package=package, workshop=tmp_path / "tree"), 10)
    written = (tmp_path / "tree/verl_omni/pipelines/bagel_flow_grpo/bagel_model.py").read_text(encoding="utf-8")
    assert "(ComposedModule, NonDiffusersModelBase):\n    checkpointed_layers = 10\n" in written


def test_parts_before_the_first_step_are_told_as_the_log_says_them(
    tables: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "try0").mkdir()
    (tmp_path / "try0/log").write_text("Started a local Ray instance.\nAfter FSDP\n")
    with tables.marked(tmp_path):
        time.sleep(1.2)
    told = capsys.readouterr().err
    assert "the trainer's first imports, and Ray" in told
    assert "the module on the card" not in told  # what comes before it is not there
