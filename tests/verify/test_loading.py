"""A checkpoint is compared by loading it: what the package's own loader fills, leaves empty, takes no notice of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaffold.checkpoint import TensorHeader
from scaffold.verify.loading import run
from scaffold.verify.loading.run import run_child

CLI = Callable[..., Any]
PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
LAYER = "language_model.model.layers.3."
UP = f"{LAYER}mlp.up_proj.weight"


def test_the_released_checkpoint_fills_every_parameter(
    scaffold_cli: CLI, reference: Path, released_bagel: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = released_bagel(tmp_path / "bagel")
    data = json.loads(scaffold_cli("remap", reference, "--checkpoint", checkpoint, "--format", "json").success())
    assert data["schema"] == 1
    assert data["proof"] == {
        **dict.fromkeys(("covers", "fills", "injective", "no_dead_rule", "invertible", "shapes"), True),
        "engine": None,
        "lora": None,
    }
    assert data["counts"] == {
        "checkpoint": 1223,
        "mapped": 796,
        "ignored": 427,
        "unexplained": 0,
        "parameters": 796,
        "unfilled": 0,
    }
    assert {"from": "language_model.model.", "to": "", "matches": 787} in data["rules"]
    assert {entry["op"] for entry in data["entries"]} == {"rename", "drop"}
    assert all(list(entry) == ["source", "target", "shape", "dtype", "op"] for entry in data["entries"])
    text = scaffold_cli("remap", reference / PACKAGE, "--checkpoint", checkpoint).success()
    assert "1223 keys: 796 fill 796 of 796 tensors of BagelForTraining, 427 are not taken" in text
    assert re.search(r"language_model\.model\.layers\.\{0\.\.27\}\.mlp\.up_proj\.weight +layers\.\{0\.\.27\}", text)


def lost(entry: TensorHeader) -> Iterator[TensorHeader]:
    if entry.name != UP:
        yield entry


def added(entry: TensorHeader) -> Iterator[TensorHeader]:
    yield entry
    if entry.name == UP:
        yield replace(entry, name=f"{LAYER}mlp.extra.weight")


def reshaped(entry: TensorHeader) -> Iterator[TensorHeader]:
    yield replace(entry, shape=(18944, 3583)) if entry.name == UP else entry


def compiled(entry: TensorHeader) -> Iterator[TensorHeader]:
    yield replace(entry, name=f"_orig_mod.{entry.name}")


def sharded(entry: TensorHeader) -> Iterator[TensorHeader]:
    yield replace(entry, name=entry.name.replace(".self_attn.", "._fsdp_wrapped_module.self_attn."))


def scaled(entry: TensorHeader) -> Iterator[TensorHeader]:
    yield from narrow(entry)
    if entry.name.endswith("_proj.weight"):
        yield TensorHeader(entry.name + "_scale", "F32", (1,), entry.file)


def narrow(entry: TensorHeader) -> Iterator[TensorHeader]:
    yield replace(entry, dtype="I8") if entry.name.endswith("_proj.weight") else entry


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lost, rf"fills: .*1 missing: {re.escape(UP)}"),
        (added, r"fills: .*1 unexpected: .*layers\.3\.mlp\.extra\.weight"),
        (reshaped, r"fills: .*1 mis-shaped: .*\(18944, 3583\) for \(18944, 3584\)"),
        (compiled, r"all keys begin with '_orig_mod\.': without it the package loads them"),
        (sharded, r"\d+ keys have '_fsdp_wrapped_module\.': without it the package loads them"),
        (scaled, r"a quantised checkpoint: \d+ weights are I8, .* with \d+ scales"),
        (narrow, r"a quantised checkpoint: \d+ weights are I8, .* with no tensor that holds their scales"),
    ],
)
def test_a_checkpoint_that_does_not_fit(
    change: Callable[[TensorHeader], Iterator[TensorHeader]],
    line: str,
    scaffold_cli: CLI,
    reference: Path,
    released_bagel: Callable[..., Path],
    tmp_path: Path,
) -> None:
    checkpoint = released_bagel(tmp_path / "bagel", change)
    done = scaffold_cli("remap", reference, "--checkpoint", checkpoint, "--format", "json")
    assert done.code == 1
    assert re.match(line, done.err), done.err
    assert len(done.err.splitlines()) == 1
    assert str(tmp_path) not in done.err


LENIENT = """
        config = BagelTrainingConfig.from_model_path(model_config.local_path)
        config.max_latent_size = 64
        module = BagelForTraining(config)
        module.load_state_dict(open_checkpoint(model_config.local_path), strict=False)
        module = module.to(torch_dtype)
"""


@pytest.mark.parametrize(
    ("code", "seconds", "told"),
    [
        ("import time; time.sleep(1000)", 25.0, "loading did not end within 25 s"),
        ("bytearray(100 << 30)", 300.0, "cannot be imported: MemoryError: more than is allowed (verl_omni/pipelines/"),
        pytest.param(
            *("import torch; torch.ones(100 << 28)", 300.0, "tried to allocate 107374182400 bytes"),
            marks=pytest.mark.table,
        ),
    ],
)
def test_an_import_that_hangs_or_asks_for_100_gigabytes_is_ended_in_a_line(
    code: str,
    seconds: float,
    told: str,
    scaffold_cli: CLI,
    released_bagel: Callable[..., Path],
    tmp_path: Path,
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "run_child", run_child)  # a process of its own, with its limits
    monkeypatch.setattr(run, "SECONDS", seconds)
    init = copied / PACKAGE / "__init__.py"
    init.write_text(f"{init.read_text()}\n{code}\n")
    done = scaffold_cli("remap", copied, "--checkpoint", released_bagel(tmp_path / "good"))
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1


def test_a_loader_that_looks_away_is_looked_at(
    scaffold_cli: CLI, reference: Path, released_bagel: Callable[..., Path], tmp_path: Path, copied: Path
) -> None:
    adapter = copied / PACKAGE / "diffusers_training_adapter.py"
    text = adapter.read_text()
    line = re.search(r"\n        module = BagelForTraining\.from_pretrained\(.*\n", text)
    assert line is not None
    text = text.replace(line[0], LENIENT)
    adapter.write_text(text.replace("from .bagel_model import ", "from .bagel_model import open_checkpoint, "))
    good = scaffold_cli("remap", copied, "--checkpoint", released_bagel(tmp_path / "good"), "--format", "json")
    assert good.code == 0, good.err
    done = scaffold_cli("remap", copied, "--checkpoint", released_bagel(tmp_path / "bad", lost), "--format", "json")
    assert done.code == 1
    assert done.err == "fills: nothing fills the parameter 'layers.3.mlp.up_proj.weight' of shape [18944, 3584]\n"
    assert json.loads(done.out)["counts"]["unfilled"] == 1


ENDING = """
        from transformers import AutoTokenizer

        module = AutoTokenizer.from_pretrained(model_config.local_path)
"""
EARLY = """
        module = BagelForTraining(BagelTrainingConfig.from_model_path(model_config.local_path))
"""


@pytest.mark.parametrize(
    ("loading", "code", "said"),
    [
        (ENDING, 2, "nothing is known of bagel: before it opens a file of weights, its loader ends with "),
        (EARLY, 1, "fills: the loader ends without opening a file of weights\nfills: nothing fills 796 parameters, "),
    ],
)
def test_a_loader_that_ends_before_the_weights(
    loading: str,
    code: int,
    said: str,
    scaffold_cli: CLI,
    released_bagel: Callable[..., Path],
    tmp_path: Path,
    copied: Path,
) -> None:
    """A tokenizer that is not there says nothing of the weights; a module without any does."""
    adapter = copied / PACKAGE / "diffusers_training_adapter.py"
    text = re.sub(r"\n        module = BagelForTraining\.from_pretrained\(.*\n", loading, adapter.read_text())
    adapter.write_text(text.replace("from .bagel_model import ", "from .bagel_model import BagelTrainingConfig, "))
    done = scaffold_cli("remap", copied, "--checkpoint", released_bagel(tmp_path / "bagel"), "--format", "json")
    assert (done.code, said in done.err) == (code, True), done.err


@pytest.fixture
def copied(self_contained: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(self_contained, tmp_path / "copied", symlinks=True))


@pytest.mark.upstream
def test_a_ported_package_loads_its_own_release_and_no_other(
    scaffold_cli: CLI, rendered: Callable[..., Path], released_bagel: Callable[..., Path], tmp_path: Path
) -> None:
    from scaffold.grade.layout import layouts
    from scaffold.verify.loading.run import write_headers

    tree = rendered("omnigen2", "--pipeline", "OmniGen2Pipeline", "--vllm-omni", "0.30.0")
    layout = layouts()["OmniGen2Pipeline"]
    name = f"{layout.weights}.safetensors"
    headers = layout.headers()
    entries = tuple(replace(entry, file=name) for entry in headers.entries)
    configs = {path: dict(values) for path, values in layout.configs.items()}
    whole = replace(headers, files=(replace(headers.files[0], name=name),), entries=entries, configs=configs)
    write_headers(whole, tmp_path / "own")
    data = json.loads(scaffold_cli("remap", tree, "--checkpoint", tmp_path / "own", "--format", "json").success())
    assert (data["counts"]["mapped"], data["counts"]["unfilled"], data["rules"]) == (582, 0, None)
    seen = scaffold_cli("verify", tree, "--checkpoint", tmp_path / "own", "--select", "checkpoint", "--format", "json")
    (check,) = json.loads(seen.success())["checks"]
    assert (check["id"], check["status"], check["value"]) == ("checkpoint", "pass", 0.0)
    other = scaffold_cli("remap", tree, "--checkpoint", released_bagel(tmp_path / "bagel"), "--format", "json")
    assert other.code == 1
    assert other.err.startswith("fills: ")
    new = (
        "new",
        "omnigen2",
        "--pipeline",
        "OmniGen2Pipeline",
        "--vllm-omni",
        "0.30.0",
        "--patch",
        "--out",
        tmp_path / "out",
    )
    assert "582 keys: 582 fill 582 of 582" in scaffold_cli(*new, "--checkpoint", tmp_path / "own").success()
    refused = scaffold_cli(*new[:-1], tmp_path / "none", "--checkpoint", tmp_path / "bagel").refusal(1)
    assert (
        "bagel is not a checkpoint of this pipeline as it is: its tensors are not those of OmniGen2/OmniGen2" in refused
    )
    assert not (tmp_path / "none").exists()


@pytest.mark.upstream
def test_an_index_says_what_is_read(scaffold_cli: CLI, rendered: Callable[..., Path], tmp_path: Path) -> None:
    from scaffold.grade.layout import layouts
    from scaffold.verify.loading.run import write_headers

    tree = rendered("omnigen2", "--pipeline", "OmniGen2Pipeline", "--vllm-omni", "0.30.0")
    layout = layouts()["OmniGen2Pipeline"]
    headers, configs = layout.headers(), {path: dict(values) for path, values in layout.configs.items()}
    names = [f"{layout.weights}-0000{part}-of-00002.safetensors" for part in (1, 2)]
    parts = [replace(entry, file=names[place % 2]) for place, entry in enumerate(headers.entries)]
    files = tuple(replace(headers.files[0], name=name) for name in names)
    whole = replace(headers, files=files, entries=tuple(parts), configs=configs)
    write_headers(whole, tmp_path / "copied")
    write_headers(whole, tmp_path / "left_out")
    stray = tmp_path / "copied" / f"{layout.weights}-merged.safetensors"
    stray.hardlink_to(tmp_path / "copied" / names[1])
    index = tmp_path / "left_out" / f"{layout.weights}.safetensors.index.json"
    table = json.loads(index.read_text())
    table["weight_map"] = {key: name for key, name in table["weight_map"].items() if "00001" in name}
    index.write_text(json.dumps(table))
    reason = f"{layout.weights}.safetensors.index.json, which says what is read, does not name it"
    text = scaffold_cli("remap", tree, "--checkpoint", tmp_path / "copied").success()
    assert f"note: '{layout.weights}-merged.safetensors' is not read: {reason}" in text
    done = scaffold_cli("remap", tree, "--checkpoint", tmp_path / "left_out", "--format", "json")
    assert done.code == 1
    first = done.err.splitlines()[0]
    assert first.startswith(f"'{names[1]}' is not read, ")
    assert first.endswith(f" and {len(parts) // 2 - 1} more tensors: {reason}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("./nowhere", "--checkpoint", "."), "./nowhere is not a folder"),
        (("bagel", "--checkpoint", ""), "--checkpoint is empty"),
        (("bagel", "--checkpoint", "./nothing"), "no such folder here: ./nothing"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], message: str, scaffold_cli: CLI, tmp_path: Path) -> None:
    assert message in scaffold_cli("remap", *arguments, cwd=tmp_path).refusal()


def test_a_package_without_a_checkpoint(scaffold_cli: CLI, reference: Path) -> None:
    assert "say which checkpoint" in scaffold_cli("remap", reference).refusal()


@pytest.mark.upstream
def test_a_pipeline_is_inferred(scaffold_cli: CLI) -> None:
    done = scaffold_cli("remap", "bagel", "--vllm-omni", "0.27.0rc1")
    text = done.success()
    assert "no --checkpoint" in text
    assert "language_model.model.layers.{0..27}.mlp.up_proj.weight" in text
    assert text.splitlines()[-2] == "the map holds, as far as names and shapes tell"
    assert text.endswith("next: `omni-scaffold new MODEL --pipeline bagel --vllm-omni 0.27.0rc1 --out DIR`\n")
