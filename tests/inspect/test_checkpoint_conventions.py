"""What loaders do to the names of a checkpoint, in the ways that real loaders are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, NET, SOURCE, look, written

LISTED = """
import os

from vllm_omni.diffusion.models.made_up.loader import Source

folder = "large" if os.environ.get("LARGE") else "small"
self.weights_sources = [Source(model_or_path=od_config.model, subfolder=folder, prefix="net.")]
"""


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
    found = look(tmp_path, pipeline=written(end=loader))
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
    found = look(tmp_path, pipeline=written(end=loader))
    assert found.value("checkpoint.renames") == [["old.", "new."], ["head.weight", "embed.weight"]]
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
    assert look(tmp_path, pipeline=written(end=loader)).value("checkpoint.ignored") == ["counter", "_extra_state"]


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
READ = "from safetensors.torch import load_file\n{use}(load_file(od_config.model + '/net.safetensors'))"


def test_weights_that_the_constructor_hands_to_a_module(tmp_path: Path) -> None:
    init = READ.format(use="self.net.load_weights")
    found = look(tmp_path, pipeline=written(init=init, net=NET + OWN, end=NOTHING))
    assert found.value("checkpoint.renames") == [["model.", ""]]


def test_weights_that_are_put_in_by_hand(tmp_path: Path) -> None:
    found = look(tmp_path, pipeline=written(end=NOTHING, init=READ.format(use="self.net.load_state_dict")))
    assert found.fact("checkpoint.renames").confidence == "unknown"


def test_loader_of_a_module_that_gets_no_weights(tmp_path: Path) -> None:
    init = (
        "from vllm_omni.diffusion.models.made_up.loader import Source\n"
        "self.words = Words()\n"
        "self.weights_sources = [Source(model_or_path=od_config.model, prefix='net.')]"
    )
    words = "\n\nclass Words(nn.Module):" + OWN
    loader = """
    def load_weights(self, weights):
        from vllm.model_executor.models.utils import AutoWeightsLoader

        return AutoWeightsLoader(self).load_weights(weights)
"""
    found = look(tmp_path, pipeline=written(init=init, net=NET + words, end=loader), modules={"loader.py": SOURCE})
    assert found.value("checkpoint.renames") == []


def test_whole_names_and_endings(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights):
        table = {"shift_table": "prepared.shift_table"}
        for name, weight in weights:
            name = table.get(name, name)
            if name == "ln_f.weight":
                name = "norm.weight"
            if name.endswith(".modulation"):
                name = name[: -len(".modulation")] + ".shift_table"
            self.put(name, weight)
"""
    found = look(tmp_path, pipeline=written(end=loader))
    rules = {(r["from"], r["to"]): r["how"] for r in found.value("detail.checkpoint.rules")}
    assert rules == {
        ("shift_table", "prepared.shift_table"): "equal",
        ("ln_f.weight", "norm.weight"): "equal",
        (".modulation", ".shift_table"): "suffix",
    }
    assert sorted(found.value("checkpoint.renames")) == sorted(list(pair) for pair in rules)


def test_part_named_beside_its_shard(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights):
        for name, weight in weights:
            for part, shard in (("q", "q"), ("k", "k")):
                if f".{part}." in name:
                    name = name.replace(f".{part}.", ".qkv.")
                    self.put(name, weight, shard)
                    break
"""
    found = look(tmp_path, pipeline=written(end=loader))
    assert found.value("checkpoint.stacked") == [[".qkv.", ".q.", "q"], [".qkv.", ".k.", "k"]]
    assert found.value("checkpoint.renames") == []


UNREAD = {
    "several parts of one name": """
            if ".q." in name:
                name = name.replace(".q.", ".qkv.")
            if ".k." in name:
                name = name.replace(".k.", ".qkv.")
            self.put(name, weight)
""",
    "one name that becomes two": """
            self.put(name.replace(".fused.", ".first."), weight[:4])
            self.put(name.replace(".fused.", ".second."), weight[4:])
""",
    "pieces put together": """
            number = name.split(".")[1]
            self.put("layers." + number + ".weight", weight)
""",
}


@pytest.mark.parametrize("body", UNREAD.values(), ids=list(UNREAD))
def test_names_that_are_not_followed(tmp_path: Path, body: str) -> None:
    loader = f"""
    def load_weights(self, weights):
        for name, weight in weights:{body.rstrip()}
"""
    assert look(tmp_path, pipeline=written(end=loader)).fact("checkpoint.renames").confidence == "unknown"


def test_piece_of_a_name_is_not_renamed(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights):
        for name, weight in weights:
            if name.startswith("outer."):
                place = name.split(".")[1]
                print("layers." + place)
                self.put(name[len("outer.") :], weight)
"""
    found = look(tmp_path, pipeline=written(end=loader))
    assert found.value("checkpoint.renames") == [["outer.", ""]]


def test_row_that_is_passed_over_ignores_no_weight(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights):
        for name, weight in weights:
            if name.startswith("teacher."):
                continue
            for target, source, shard in (("qkv", "q", "q"), ("qkv", "k", "k")):
                if "experts" in name:
                    continue
                name = name.replace(source, target)
            self.put(name, weight)
"""
    assert look(tmp_path, pipeline=written(end=loader)).value("checkpoint.ignored") == ["teacher."]


@pytest.mark.parametrize(
    ("test", "ignored"),
    [
        ('name.endswith(".bias")', [".bias"]),
        ('name.endswith(".bias") and self.tied', [".bias"]),
        ('name.endswith(".bias") and name not in known', []),
        ('name.startswith("head.") and name.endswith(".bias")', []),
        ('name.startswith("head.") or name.endswith(".bias")', ["head.", ".bias"]),
    ],
)
def test_names_that_one_test_alone_ignores(tmp_path: Path, test: str, ignored: list[str]) -> None:
    loader = f"""
    def load_weights(self, weights):
        known = dict(self.named_parameters())
        for name, weight in weights:
            if {test}:
                continue
            self.put(name, weight)
"""
    assert look(tmp_path, pipeline=written(end=loader)).value("checkpoint.ignored") == ignored


@pytest.mark.parametrize(("end", "ignored"), [("pass", ["old."]), ("raise KeyError(left)", [])])
def test_names_that_are_gathered_and_raised(tmp_path: Path, end: str, ignored: list[str]) -> None:
    loader = f"""
    def load_weights(self, weights):
        known = dict(self.named_parameters())
        left = []
        for name, weight in weights:
            if name.startswith("old."):
                left.append(name)
                continue
            if name in known:
                self.put(name, weight)
            else:
                left.append(name)
        if left:
            {end}
"""
    found = look(tmp_path, pipeline=written(end=loader))
    assert found.value("checkpoint.ignored") == ignored


def test_name_that_another_module_loads(tmp_path: Path) -> None:
    net = (
        NET
        + """
    def load_weights(self, weights):
        for name, weight in weights:
            if "vision" in name:
                continue
            if "counter" in name:
                continue
            self.put(name, weight)
"""
    )
    loader = """
    def load_weights(self, weights):
        self.net.load_weights(weights)
"""
    found = look(tmp_path, pipeline=written(init="self.vision = nn.Linear(8, 8)", net=net, end=loader))
    assert found.value("checkpoint.ignored") == ["counter"]


def test_prefix_without_which_a_name_is_passed_over(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights):
        for name, weight in weights:
            if not name.startswith("model."):
                continue
            self.put(name[len("model.") :], weight)
"""
    assert look(tmp_path, pipeline=written(end=loader)).value("checkpoint.renames") == [["model.", ""]]


def test_names_that_go_both_ways(tmp_path: Path) -> None:
    loader = """
    def load_weights(self, weights):
        known = dict(self.named_parameters())

        def fitted(name):
            if not name.startswith("tower."):
                return name
            rest = name[len("tower.") :]
            if rest.startswith("inner."):
                other = "tower." + rest[len("inner.") :]
            else:
                other = "tower." + "inner." + rest
            return other if other in known else name

        for name, weight in weights:
            self.put(fitted(name), weight)
"""
    renames = look(tmp_path, pipeline=written(end=loader)).fact("checkpoint.renames")
    assert renames.value == [["tower.inner.", "tower."], ["tower.", "tower.inner."]]
    assert renames.confidence == "likely"
