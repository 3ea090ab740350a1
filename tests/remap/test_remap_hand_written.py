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
# What the engine's own LoRA manager does not reach from 0.24.0 on; the seventh kind is mlp_moe_gen.down_proj.
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


def lost_targets(outcome: Any) -> list[str]:
    assert outcome.code == 1, outcome.err
    assert "the map does not hold: lora" in outcome.out
    return re.findall(r"^lora: 28 of 28 modules of the LoRA target '([^']+)' do not take effect", outcome.out, re.M)


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
    assert lost_targets(scaffold_cli("remap", folder)) == LOST
    outcome = scaffold_cli("remap", folder, "--format", "json")
    proof = json.loads(outcome.out)["proof"]
    assert outcome.code == 1
    assert [check for check, holds in proof.items() if not holds] == ["lora"]
    assert all(f"'{target}'" in outcome.err for target in LOST)


@pytest.mark.parametrize("version", ["0.24.0", "0.30.0"])
def test_the_engine_alone(version: str, scaffold_cli: CLI) -> None:
    arguments = ("remap", "bagel", "--vllm-omni", version, "--lora-targets")
    outcome = scaffold_cli(*arguments, ",".join(ALL))
    assert lost_targets(outcome) == LOST
    assert "without what a package does for its adapters" in outcome.out
    assert '"lora": true' in scaffold_cli(*arguments, "mlp_moe_gen.down_proj", "--format", "json").success()


def test_a_target_that_the_engine_packs_under_another_name(scaffold_cli: CLI) -> None:
    packed = scaffold_cli("remap", "bagel", "--vllm-omni", "0.27.0rc1", "--lora-targets", "mlp_moe_gen.gate_proj")
    assert lost_targets(packed) == ["mlp_moe_gen.gate_proj"]
    assert "keeps the weight in 'language_model.model.layers.0.mlp_moe_gen.gate_up_proj.weight'" in packed.out
    assert "packed from 2 layers" in packed.out
    told = scaffold_cli("remap", "bagel", "--vllm-omni", "0.22.0", "--lora-targets", "mlp_moe_gen.gate_proj")
    assert "bound by the engine's own LoRA manager" in told.success()


def test_targets_come_from_the_launch_script_or_the_flag(scaffold_cli: CLI, hand_written: Path, tree: Path) -> None:
    shutil.rmtree(tree / "examples")
    shutil.rmtree(tree / "tests")
    outcome = scaffold_cli("remap", hand_written, "--format", "json")
    assert json.loads(outcome.success())["proof"]["lora"] is None
    assert "no launch script names the package's LoRA targets" in scaffold_cli("remap", hand_written).success()
    given = scaffold_cli("remap", hand_written, "--lora-targets", "q_proj_moe_gen, wrong_proj")
    assert given.code == 1
    assert "no module of training is called 'wrong_proj'" in given.out


def test_a_module_that_text_hides(scaffold_cli: CLI, hand_written: Path) -> None:
    edit(
        hand_written / "bagel_model.py",
        "nn.Parameter(torch.empty(side * side, hidden_size)",
        "nn.Parameter(table(side)",
    )
    said = scaffold_cli("remap", hand_written).success()
    assert re.search(
        r"those that a rendered module would have: bagel_model\.py:\d+: .*nn\.Parameter is not known", said
    )
    assert "796 parameters, 0 unfilled" in said


@pytest.mark.parametrize(
    ("old", "new", "check", "message"),
    [
        (
            "self.norm_moe_gen = RMSNorm(hidden, ",
            "self.norm_moe_gen = RMSNorm(2 * hidden, ",
            "shapes",
            r"norm_moe_gen\.weight' has shape \[3584\], its parameter 'norm_moe_gen\.weight' \[7168\]",
        ),
        (
            "self.norm_moe_gen = ",
            "self.extra = nn.Linear(3, 5)\n        self.norm_moe_gen = ",
            "fills",
            r"no key fills the parameter 'extra\.(bias|weight)'",
        ),
    ],
)
def test_a_module_of_its_own(
    old: str, new: str, check: str, message: str, scaffold_cli: CLI, hand_written: Path
) -> None:
    edit(hand_written / "bagel_model.py", old, new)
    outcome = scaffold_cli("remap", hand_written, "--format", "json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["proof"][check] is False
    assert re.search(message, outcome.err), outcome.err


def test_a_folder_without_a_pipeline(scaffold_cli: CLI, hand_written: Path) -> None:
    (hand_written / ADAPTER).unlink()
    assert "no class in it inherits a pipeline of vllm-omni" in scaffold_cli("remap", hand_written).refusal()


def test_a_folder_elsewhere(scaffold_cli: CLI, hand_written: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(hand_written, tmp_path / "elsewhere")
    assert "does not lie in verl_omni/pipelines/" in scaffold_cli("remap", moved).refusal()


def test_an_empty_flag(scaffold_cli: CLI) -> None:
    assert "--lora-targets is empty" in scaffold_cli("remap", "bagel", "--lora-targets", " , ").refusal()
