"""Packages of complete pipelines load what their releases have: names, shapes, dtypes, files, configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sparse_release import write_release

from scaffold.checkpoint import manifest_text
from scaffold.files.resources import presets_root
from scaffold.grade.layout import digest, layouts
from scaffold.grade.proof import proofs
from scaffold.render.names import model_name
from scaffold.spec import read_spec

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.30.0"
# Others may have a layout before their proof; where diffusers has the pipeline, it loads the checkpoint.
EXPORTS = json.loads((ROOT / "scaffold" / "inspect" / "diffusers_exports.json").read_text(encoding="utf-8"))
LOADED = {name for release in ("0.38.0", "0.40.0") for name in EXPORTS[release]["pipelines"]}
COMPLETE = {proven.partition(" ")[0] for proven in proofs()[VERSION]} - LOADED
DTYPES = {"BF16": "bfloat16", "F32": "float32"}
# In a process of its own: what the module is, and how much memory of its own it has.
LOAD = """
import ctypes, importlib, json, mmap, re, sys
from pathlib import Path
module, name, folder, dtype = sys.argv[1:]
import torch
mapped = torch.UntypedStorage.from_file
def sparse(path, shared=None, *rest, **named):
    # A small machine refuses a private mapping of a file larger than its memory, and nothing here is written to.
    storage = mapped(path, True, *rest, **named)
    # Nor is anything read ahead: with each byte that is looked at, megabytes of nothing would fill the memory.
    place = ctypes.c_void_p(storage.data_ptr()), ctypes.c_size_t(storage.nbytes())
    assert ctypes.CDLL(None).madvise(*place, mmap.MADV_RANDOM) == 0
    return storage
torch.UntypedStorage.from_file = sparse
loaded = getattr(importlib.import_module(module), name)
def private():
    rows = Path("/proc/self/smaps_rollup").read_text() if Path("/proc/self/smaps_rollup").exists() else ""
    # What is clean of a file is the file's.
    return sum(int(size) for size in re.findall(r"^Private_Dirty: +(\\d+)", rows, re.M)) * 1024
before = private()
try:
    model = loaded.from_pretrained(folder, torch_dtype=getattr(torch, dtype))
except (FileNotFoundError, KeyError, ValueError) as error:
    print(json.dumps({"refused": str(error)}))
else:
    found = dict(model.named_parameters())
    print(json.dumps({
        "elements": sum(tensor.numel() for tensor in found.values()),
        "dtypes": sorted({str(tensor.dtype) for tensor in found.values()}),
        "unloaded": [name for name, tensor in (*found.items(), *model.named_buffers()) if tensor.is_meta],
        "private": private() - before,
    }))
"""


@pytest.fixture
def package(rendered: Callable[..., Path]) -> Callable[[str], Path]:
    """Render the package of a pipeline once."""

    def render(pipeline: str) -> Path:
        name = model_name(pipeline)
        return rendered(name, "--pipeline", pipeline, "--vllm-omni", VERSION) / f"verl_omni/pipelines/{name}_flow_grpo"

    return render


@pytest.fixture
def load(
    package: Callable[[str], Path], kit_environment: Callable[..., Any], warm_python: Callable[..., Any]
) -> Callable[[str, Path], dict[str, Any]]:
    """Let the package of a pipeline load what it is given."""

    def run(pipeline: str, given: Path) -> dict[str, Any]:
        where = package(pipeline)
        names = read_spec(where / "scaffold.toml").spec.sections["names"]
        module = f"verl_omni.pipelines.{where.name}.{names['model']}_model"
        (dtype, _), *_ = Counter(entry.dtype for entry in layouts()[pipeline].headers().entries).most_common()
        arguments = [module, names["module_class"], given, DTYPES[dtype]]
        done = warm_python(
            ["-c", LOAD, *arguments], cwd=where, env=kit_environment(where.parents[2], CUDA_VISIBLE_DEVICES="")
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return dict(json.loads(done.stdout.splitlines()[-1]))

    return run


def test_every_complete_pipeline_has_one() -> None:
    assert set(layouts()) >= COMPLETE


@pytest.mark.parametrize("pipeline", layouts())
def test_what_it_says_fits_together(pipeline: str) -> None:
    layout = layouts()[pipeline]
    headers = layout.headers()
    assert set(layout.configs) <= set(layout.files)
    assert not set(layout.files) & {*layout.weight_files, layout.index_file}
    assert list(layout.files) == sorted(layout.files)
    assert {"tensors", "dtypes", "files", "configs"} <= set(layout.origin)
    assert layout.origin.get("digest", digest(headers.entries)) == digest(headers.entries)
    assert layout.origin.get("bytes", headers.total_bytes) == headers.total_bytes
    text = (presets_root() / "manifests" / layout.manifest).read_text(encoding="utf-8")
    assert text == manifest_text(headers.entries), "written by benchmarks/manifest.py"


@pytest.mark.upstream
@pytest.mark.slow
@pytest.mark.parametrize("pipeline", sorted(COMPLETE))
def test_the_package_loads_the_release(load: Callable[..., dict[str, Any]], tmp_path: Path, pipeline: str) -> None:
    pytest.importorskip("torch")
    layout = layouts()[pipeline]
    write_release(tmp_path, layout)
    weights = [(tmp_path / path).stat() for path in layout.weight_files]
    assert sum(stat.st_size for stat in weights) > layout.headers().total_bytes
    assert sum(stat.st_blocks for stat in weights) * 512 < 8_000_000
    assert layout.origin.get("file_bytes", weights[0].st_size) == weights[0].st_size
    found = load(pipeline, tmp_path / layout.given)
    assert found.get("unloaded") == [], found
    elements = sum(entry.nbytes // (4 if entry.dtype == "F32" else 2) for entry in layout.headers().entries)
    assert elements / 2 < found["elements"] <= elements
    if layout.names is not None:
        assert found["elements"] == elements
    assert len(found["dtypes"]) == 1
    # A fork of the warm Python dirties whole large pages, some hundred MB of them.
    # HunyuanImage-3.0's loader takes queries, keys and values out of one tensor by groups, which no view can: 2 %.
    assert found["private"] < max(1_000_000_000, layout.headers().total_bytes // 50)


@pytest.mark.upstream
@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["BagelPipeline", "BooguImagePipeline"])
def test_a_release_that_lacks_a_tensor_is_refused(
    load: Callable[..., dict[str, Any]], tmp_path: Path, pipeline: str
) -> None:
    pytest.importorskip("torch")
    layout = layouts()[pipeline]
    lost = next(entry.name for entry in layout.headers().entries if "layers.1." in entry.name)
    write_release(tmp_path, layout, without={lost})
    assert f"1 missing: {lost}" in load(pipeline, tmp_path).get("refused", "").replace(".processor.", ".")


DERIVE = """
import sys
from pathlib import Path
folder, package, pipeline = sys.argv[1:]
sys.path.insert(0, folder)
import manifest
manifest.rendered = lambda *_: Path(package)
sys.argv = ["manifest.py", pipeline]
manifest.main()
"""
DERIVED = [pipeline for pipeline, layout in layouts().items() if layout.names is not None]


@pytest.mark.upstream
@pytest.mark.slow
@pytest.mark.parametrize("pipeline", DERIVED)
def test_a_derived_manifest_is_what_the_command_writes(
    package: Callable[[str], Path], warm_python: Callable[..., Any], kit_environment: Callable[..., Any], pipeline: str
) -> None:
    """With the package that `new` has rendered already in place of one more."""
    pytest.importorskip("torch")
    manifest = presets_root() / "manifests" / layouts()[pipeline].manifest
    done = warm_python(["-c", DERIVE, ROOT / "benchmarks", package(pipeline), pipeline], env=kit_environment(ROOT))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == manifest.read_text(encoding="utf-8"), "run benchmarks/manifest.py"


def command(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/manifest.py"), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.upstream
@pytest.mark.slow
def test_the_command_renders_the_package_itself() -> None:
    pytest.importorskip("torch")
    manifest = presets_root() / "manifests" / layouts()[DERIVED[0]].manifest
    assert command(DERIVED[0]) == manifest.read_text(encoding="utf-8")


@pytest.mark.parametrize("pipeline", ["BagelPipeline", "BooguImagePipeline", "WanS2VPipeline"])
def test_the_command_reads_released_files_too(tmp_path: Path, pipeline: str) -> None:
    layout = layouts()[pipeline]
    write_release(tmp_path, layout)
    manifest = presets_root() / "manifests" / layout.manifest
    assert command(pipeline, "--checkpoint", tmp_path) == manifest.read_text(encoding="utf-8")
