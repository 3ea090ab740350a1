"""What loaders do to the names of a checkpoint, in the ways that real loaders are written."""

from __future__ import annotations

from pathlib import Path

from synthetic import EULER, HEAD, NET, PIPELINE, look

SOURCE = """
from dataclasses import dataclass


@dataclass
class Source:
    model_or_path: str
    subfolder: str | None = None
    prefix: str = ""
"""
LISTED = """
import os

from vllm_omni.diffusion.models.made_up.loader import Source

folder = "large" if os.environ.get("LARGE") else "small"
self.weights_sources = [Source(model_or_path=od_config.model, subfolder=folder, prefix="net.")]
"""


def _pipeline(loader: str, net: str = NET, init: str = "pass") -> str:
    indented = "".join(" " * 8 + line for line in EULER.splitlines(keepends=True))
    text = PIPELINE.format(name="MadeUpPipeline", bases="nn.Module", init=" " * 8 + init, loop=indented)
    return HEAD + net + text + loader


def test_folder_that_depends_on_what_is_installed(tmp_path: Path) -> None:
    found = look(tmp_path, EULER, init=LISTED, modules={"loader.py": SOURCE})
    assert found.value("checkpoint.files") == ["large/*.safetensors", "small/*.safetensors"]


def test_fused_names_written_without_their_dots(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights):
        table = [("qkv", "q", "q"), ("qkv", "k", "k"), ("gate_up", "gate", 0)]
        for name, weight in weights:
            for target, source, shard in table:
                if f".{source}." not in name:
                    continue
                name = name.replace(f".{source}.", f".{target}.")
                break
"""
    found = look(tmp_path, pipeline=_pipeline(loader))
    fused = [[".qkv.", ".q.", "q"], [".qkv.", ".k.", "k"], [".gate_up.", ".gate.", 0]]
    assert found.value("checkpoint.stacked") == fused
    assert found.value("checkpoint.renames") == []


def test_renamed_name_that_is_returned_is_not_ignored(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights):
        def renamed(name):
            if name.startswith("old."):
                return "new." + name[len("old.") :]
            if name == "head.weight":
                return "embed.weight"
            return name

        for name, weight in weights:
            name = renamed(name)
            if name.startswith("teacher."):
                continue
            self.put(name, weight)
"""
    found = look(tmp_path, pipeline=_pipeline(loader))
    assert found.value("checkpoint.renames") == [["old.", "new."]]
    assert found.value("checkpoint.ignored") == ["teacher."]


def test_names_that_any_of_a_table_drops(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights):
        state = dict(weights)
        if "done.weight" in state:
            return state
        for name, weight in state.items():
            if any(part in name for part in ("counter", "_extra_state")):
                continue
            self.put(name, weight)
"""
    assert look(tmp_path, pipeline=_pipeline(loader)).value("checkpoint.ignored") == ["counter", "_extra_state"]


OWN = """
    def load_weights(self, weights):
        for name, weight in weights:
            name = name.removeprefix("model.")
            self.put(name, weight)
"""
NOTHING = """
    def load_weights(self, weights):
        for _ in weights:
            pass
"""
READ = "from safetensors.torch import load_file\n        {use}(load_file(od_config.model + '/net.safetensors'))"


def test_weights_that_the_constructor_hands_to_a_module(tmp_path: Path) -> None:
    init = READ.format(use="self.net.load_weights")
    found = look(tmp_path, pipeline=_pipeline(NOTHING, NET + OWN, init))
    assert found.value("checkpoint.renames") == [["model.", ""]]


def test_weights_that_are_put_in_by_hand(tmp_path: Path) -> None:
    found = look(tmp_path, pipeline=_pipeline(NOTHING, init=READ.format(use="self.net.load_state_dict")))
    assert found.fact("checkpoint.renames").confidence == "unknown"


def test_loader_of_a_module_that_gets_no_weights(tmp_path: Path) -> None:
    init = (
        "from vllm_omni.diffusion.models.made_up.loader import Source\n"
        "        self.words = Words()\n"
        "        self.weights_sources = [Source(model_or_path=od_config.model, prefix='net.')]"
    )
    words = "\n\nclass Words(nn.Module):" + OWN
    loader = """
    def load_weights(self, weights):
        from vllm.model_executor.models.utils import AutoWeightsLoader

        return AutoWeightsLoader(self).load_weights(weights)
"""
    found = look(tmp_path, pipeline=_pipeline(loader, NET + words, init), modules={"loader.py": SOURCE})
    assert found.value("checkpoint.renames") == []
