"""A ported package whose tiny checkpoint is recorded: its smoke test builds that, and verl-omni's runner calls it."""

from __future__ import annotations

import json
import os
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = os.environ.get("VERL_OMNI_SRC", "")
NEW = ("new", "omnigen2", "--pipeline", "OmniGen2Pipeline", "--vllm-omni", "0.30.0", "--packaged")
SMOKE = "tests/special_e2e"
pytestmark = pytest.mark.upstream


@pytest.fixture(scope="module")
def tree(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recorded") / "tree"
    scaffold_cli(*NEW, "--patch", "--out", out).success()
    return out


def test_the_script_builds_what_was_recorded(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from safetensors.torch import load_file

    record = json.loads((tree / SMOKE / "omnigen2_tiny_random.json").read_text())
    folder = tmp_path / "models" / "tiny"
    monkeypatch.setattr("sys.argv", ["build", "--output-dir", str(folder)])
    runpy.run_path(str(tree / SMOKE / "build_omnigen2_tiny_random.py"), run_name="__main__")
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {*record["texts"], *record["weights"]}
    assert json.loads((folder / "model_index.json").read_text()) == {"_class_name": "OmniGen2Pipeline"}
    for name, shapes in record["weights"].items():
        tensors = load_file(folder / name)
        assert {key: list(tensor.shape) for key, tensor in tensors.items()} == shapes
        assert all(tensor.isfinite().all() and tensor.abs().max() > 0 for tensor in tensors.values())
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]


def test_the_smoke_test_needs_nothing_and_is_called(tree: Path) -> None:
    script = (tree / SMOKE / "run_flowgrpo_omnigen2.sh").read_text()
    assert ":?" not in script
    assert f'    python3 {SMOKE}/build_omnigen2_tiny_random.py --output-dir "$MODEL_PATH"\n' in script
    assert "HEIGHT=${HEIGHT:-64}\nWIDTH=${WIDTH:-64}\n" in script
    patch = (tree / "verl_omni.patch").read_text()
    assert f"+    bash {SMOKE}/run_flowgrpo_omnigen2.sh" in patch
    readme = (tree / "examples/flowgrpo_trainer/omnigen2/README.md").read_text()
    assert f"\nNUM_GPUS=4 bash {SMOKE}/run_flowgrpo_omnigen2.sh\n" in readme


@pytest.mark.skipif(not CHECKOUT, reason="VERL_OMNI_SRC names no verl-omni checkout")
def test_its_files_start_the_diffusion_group_alone(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    root = tmp_path / "verl-omni"
    shutil.copytree(CHECKOUT, root, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    scaffold_cli(*NEW, "--verl-omni", root, "--allow-version-mismatch").success()
    selector = runpy.run_path(str(root / "tests/gpu_smoke/select_gpu_smoke_groups.py"))
    select = selector["select_group_names"]
    mine = sorted(path.relative_to(root).as_posix() for path in (root / SMOKE).glob("*omnigen2*"))
    assert len(mine) == 5
    assert {tuple(select([path])) for path in mine} == {("ci-e2e-diffusion",)}
    assert select([f"{SMOKE}/run_gspo_qwen3_omni_thinker_lora_smoke.sh"]) == ["ci-e2e-omni"]
    runner = root / selector["GROUPS"]["ci-e2e-diffusion"].script
    assert f"bash {SMOKE}/run_flowgrpo_omnigen2.sh" in runner.read_text()
