"""A tiny checkpoint in files that the pipeline reads by itself: names, other parts, and configuration beside them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from scaffold.verify.rollout.engine_side.tiny.asked import noting
from scaffold.verify.rollout.engine_side.tiny.checkpoint import Growing, subfolders
from scaffold.verify.rollout.engine_side.tiny.components import Components, NoTinyModelError, _named_model
from scaffold.verify.rollout.engine_side.tiny.denoiser import PortedModule

DENOISER = """
import json
from pathlib import Path

import torch

SIZES = {"hidden_size": 2048}


class Toy(torch.nn.Module):
    def __init__(self, hidden_size: int = 1024):
        super().__init__()
        self.body = torch.nn.Linear(hidden_size, 4)


def build_denoiser(od_config):
    state = od_config.load_file(od_config.model)
    if any(key.startswith("main.") for key in state):
        mine = {key[5:]: tensor for key, tensor in state.items() if key.startswith("main.")}
        other = [key for key in state if key.startswith("text.")]
    else:
        mine = {k.removeprefix("net.").replace("trunk", "body"): v for k, v in state.items() if "adapter" not in k}
        other = [key for key in state if key.startswith("net.adapter.")]
    if not other:
        raise ValueError("a part is missing")
    place = Path(od_config.model).with_suffix(".json")
    config = json.loads(place.read_text()) if place.is_file() else {}
    return Toy(**{**SIZES, **config.get("main", {})}), mine
"""
MODEL = """
from flow_grpo_runtime.checkpoint import DenoiserSource

SOURCE = DenoiserSource(build=None, prefix="transformer.")
"""
RENAMES = [["main.", ""], ["text.", ""], ["net.adapter.", ""], ["net.", ""], ["trunk", "body"]]


@pytest.fixture
def ported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PortedModule:
    folder = tmp_path / "filed_package"
    folder.mkdir()
    for name, text in (("__init__", ""), ("toy_denoiser", DENOISER), ("toy_model", MODEL)):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("filed_package", "filed_package.toy_denoiser", "filed_package.toy_model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    facts = {"model": "toy", "entry": "Toy", "renames": RENAMES, "pipeline": "ToyPipeline", "reads": True, "file": True}
    return PortedModule("filed_package", facts)


def tensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def test_the_file_is_written_as_the_builder_reads_it(ported: PortedModule, tmp_path: Path) -> None:
    """Of the two layouts the one is taken in which a tensor that belongs to nothing is noticed."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    settings = ported.write(folder, {}, torch.float32)
    assert settings["hidden_size"] == 96
    found = tensors(folder / "model.safetensors")
    assert set(found) == {"net.trunk.weight", "net.trunk.bias", "net.adapter.of_another_part"}
    assert found["net.trunk.weight"].shape == (4, 96)
    assert json.loads((folder / "model.json").read_text()) == {"main": {"hidden_size": 96}}
    assert not (folder / "config.json").exists()


def test_what_the_builder_never_takes_is_said(ported: PortedModule, tmp_path: Path) -> None:
    ported.facts["renames"] = []
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(NoTinyModelError, match="under which keys the pipeline finds Toy in a file is not known"):
        ported.write(tmp_path / "checkpoint", {}, torch.float32)


class Adapter(torch.nn.Module):
    def __init__(self, source_dim: int = 2048, target_vocab_size: int = 32_000, num_heads: int = 16) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(target_vocab_size, source_dim)


def refused(part: torch.nn.Module, state: dict[str, torch.Tensor]) -> Exception:
    with pytest.raises(RuntimeError) as raised:
        part.load_state_dict(state)
    return raised.value


def test_the_other_part_is_made_small_and_then_written(ported: PortedModule, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    made = Growing(folder, ported, Components(folder, [], {}, torch.float32), {}, torch.float32)
    made.write_denoiser()
    given = {"of_another_part": torch.zeros(1)}
    module: dict[str, Any] = {"json": json}
    with noting(module, {}, made.asked):
        module["json"].loads((folder / "model.json").read_text()).get("main", {})
        module["json"].loads((folder / "model.json").read_text()).get("text", {})
    assert made.fit(refused(Adapter(), given))
    small = json.loads((folder / "model.json").read_text())
    assert small["main"] == {"hidden_size": 96}
    assert (small["text"]["source_dim"], small["text"]["num_heads"]) == (32, 4)
    assert small["text"]["target_vocab_size"] == len(made.components.tokenizer()) < 1000
    assert made.fit(refused(Adapter(**small["text"]), given))
    found = tensors(folder / "model.safetensors")
    assert found["net.adapter.table.weight"].shape == (small["text"]["target_vocab_size"], 32)
    assert "net.trunk.weight" in found
    assert not made.fit(refused(Adapter(**small["text"]), {"other": torch.zeros(1)}))


def test_folders_are_named_to_a_method_of_the_class_too() -> None:
    source = (
        "    class Pipeline:\n"
        "        @staticmethod\n        def settings(model, subfolder=None):\n            return model\n\n"
        '        def load(self, name):\n            self.settings(name, "vae")\n            self.settings(name, name)\n'
        '            load(name, subfolder="text_encoder")\n            self.other(name, "nothing")\n'
    )
    assert subfolders(source) == {"vae", "text_encoder"}


@pytest.mark.parametrize(
    ("given", "folder", "kind"),
    [
        ({}, "hub/google/gemma-2-2b-it", "Gemma2Model"),
        ({"model_type": "qwen3"}, "hub/google/gemma-2-2b-it", "Qwen3Model"),
        ({}, "text_encoder", None),
    ],
)
def test_the_type_of_an_automatic_model(given: dict[str, Any], folder: str, kind: str | None) -> None:
    auto = pytest.importorskip("transformers").AutoModel
    if kind is None:
        with pytest.raises(NoTinyModelError, match="set model_type of the component"):
            _named_model(auto, given, Path(folder))
    else:
        assert _named_model(auto, given, Path(folder)).__name__ == kind


def test_files_that_a_pipeline_reads_by_itself_are_as_scaffold_toml_describes_them(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from scaffold.verify.rollout.engine_side.tiny.checkpoint import write_files

    given = {"mlp/config.json": {"width": 4}, "mlp/model.safetensors": {"a.weight": [3, 64], "b.scale": [4]}}
    write_files(tmp_path, given, torch.bfloat16)
    assert json.loads((tmp_path / "mlp/config.json").read_text()) == {"width": 4}
    found = load_file(tmp_path / "mlp/model.safetensors")
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in found.items()} == {
        "a.weight": ((3, 64), torch.bfloat16),
        "b.scale": ((4,), torch.bfloat16),
    }
    assert 0 < found["a.weight"].abs().max() < 1
    assert (found["b.scale"] - 1).abs().max() < 0.5
    write_files(tmp_path, {"mlp/config.json": {"width": 5}}, torch.float32)
    assert json.loads((tmp_path / "mlp/config.json").read_text()) == {"width": 4}  # what is there stays
    with pytest.raises(ValueError, match=r"^\[verify\.files\]: '\.\./out\.json' leads out of the folder"):
        write_files(tmp_path / "in", {"../out.json": {}}, torch.float32)
