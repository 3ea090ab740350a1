"""``omni-scaffold remap`` on packages that nobody rendered, and on ones that do nothing about LoRA."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

CLI = Callable[..., Any]
PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
ADAPTER = "vllm_omni_rollout_adapter.py"
HOOK = "map_lora_update_to_engine"
# What the engine's own LoRA manager does not reach from 0.24.0 on.
LOST = [f"{side}_proj_moe_gen" for side in "qkvo"] + ["mlp_moe_gen.gate_proj", "mlp_moe_gen.up_proj"]
ALL = [*LOST, "mlp_moe_gen.down_proj"]


@pytest.fixture
def tree(reference: Path, tmp_path: Path) -> Path:
    """Return a copy of the rendered tree, to be altered."""
    return shutil.copytree(reference, tmp_path / "tree", symlinks=True)


@pytest.fixture
def hand_written(tree: Path) -> Path:
    """Return the package without its spec: to the tool, somebody's own."""
    (tree / PACKAGE / "scaffold.toml").unlink()
    return tree / PACKAGE


def without_hook(folder: Path) -> None:
    """Delete the method that brings adapters to the engine."""
    path = folder / ADAPTER
    module = ast.parse(path.read_text(encoding="utf-8"))
    found = False
    for cls in module.body:
        if isinstance(cls, ast.ClassDef):
            kept = [node for node in cls.body if getattr(node, "name", None) != HOOK]
            found = found or len(kept) < len(cls.body)
            cls.body = kept
    assert found
    path.write_text(ast.unparse(module), encoding="utf-8")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def lost_targets(said: str) -> list[str]:
    return re.findall(r"^lora: 28 of 28 modules of the LoRA target '([^']+)' do not take effect", said, re.M)


def test_what_is_hand_written_is_proved_as_far_as_text_goes(scaffold_cli: CLI, hand_written: Path) -> None:
    text = scaffold_cli("remap", hand_written).success()
    assert "BagelPipeline of vllm-omni 0.27.0rc1" in text
    assert "no scaffold.toml: the rules are those that names and shapes lead to, what its own loader does" in text
    assert "parameters are those of bagel_model.py" in text
    assert "796 parameters, 0 unfilled" in text
    assert text.splitlines()[-2] == "the map is proved"


@pytest.mark.parametrize("kept", [True, False], ids=["rendered", "hand-written"])
def test_a_package_that_does_nothing_about_lora(kept: bool, scaffold_cli: CLI, tree: Path) -> None:
    folder = tree / PACKAGE
    without_hook(folder)
    if not kept:
        (folder / "scaffold.toml").unlink()
    outcome = scaffold_cli("remap", folder, "--format", "json")
    proof = json.loads(outcome.out)["proof"]
    assert outcome.code == 1
    assert [check for check, holds in proof.items() if not holds] == ["lora"]
    assert lost_targets(outcome.err) == LOST


def test_the_engine_alone(scaffold_cli: CLI) -> None:
    outcome = scaffold_cli("remap", "bagel", "--vllm-omni", "0.30.0", "--lora-targets", ",".join(ALL))
    assert outcome.code == 1
    assert lost_targets(outcome.out) == LOST
    assert "the map does not hold: lora" in outcome.out
    assert "without what a package does for its adapters" in outcome.out
    # It packs some under another name.
    assert "keeps the weight in 'language_model.model.layers.0.mlp_moe_gen.gate_up_proj.weight'" in outcome.out
    assert "packed from 2 layers" in outcome.out
    told = scaffold_cli("remap", "bagel", "--vllm-omni", "0.22.0", "--lora-targets", "mlp_moe_gen.gate_proj")
    assert "bound by the engine's own LoRA manager" in told.success()


def test_what_is_not_told_is_said_and_the_flag_tells_targets(scaffold_cli: CLI, hand_written: Path, tree: Path) -> None:
    shutil.rmtree(tree / "examples")
    shutil.rmtree(tree / "tests")
    given = scaffold_cli("remap", hand_written, "--lora-targets", "q_proj_moe_gen, wrong_proj")
    assert given.code == 1
    assert "no module of training is called 'wrong_proj'" in given.out
    known = "nn.Parameter(torch.empty(side * side, hidden_size)"
    edit(hand_written / "bagel_model.py", known, "nn.Parameter(table(side)")
    said = scaffold_cli("remap", hand_written).success()
    assert "no launch script names the package's LoRA targets" in said
    assert "unknown: lora" in said
    assert re.search(
        r"those that a rendered module would have: bagel_model\.py:\d+: .*nn\.Parameter is not known", said
    )
    assert "796 parameters, 0 unfilled" in said


def test_a_module_of_its_own(scaffold_cli: CLI, hand_written: Path) -> None:
    edit(
        hand_written / "bagel_model.py",
        "self.norm_moe_gen = RMSNorm(hidden, ",
        "self.extra = nn.Linear(3, 5)\n        self.norm_moe_gen = RMSNorm(2 * hidden, ",
    )
    outcome = scaffold_cli("remap", hand_written, "--format", "json")
    assert outcome.code == 1
    proof = json.loads(outcome.out)["proof"]
    assert (proof["shapes"], proof["fills"]) == (False, False)
    assert "norm_moe_gen.weight' has shape [3584], its parameter 'norm_moe_gen.weight' [7168]" in outcome.err
    assert re.search(r"no key fills the parameter 'extra\.(bias|weight)'", outcome.err), outcome.err


def test_a_folder_without_a_pipeline(scaffold_cli: CLI, hand_written: Path) -> None:
    (hand_written / ADAPTER).unlink()
    assert "no class in it inherits a pipeline of vllm-omni" in scaffold_cli("remap", hand_written).refusal()


def test_a_folder_elsewhere(scaffold_cli: CLI, hand_written: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(hand_written, tmp_path / "elsewhere")
    assert "does not lie in verl_omni/pipelines/" in scaffold_cli("remap", moved).refusal()


def test_an_empty_flag(scaffold_cli: CLI) -> None:
    assert "--lora-targets is empty" in scaffold_cli("remap", "bagel", "--lora-targets", " , ").refusal()
