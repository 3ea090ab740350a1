"""The commands of a rendered README's page "After training", on a tiny model: with LoRA, and with full parameters."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import require
from warm_python import WarmPython

from scaffold.files.resources import kit_root

require("torch", "peft")

pytestmark = [pytest.mark.upstream, pytest.mark.slow]
REPOSITORY = Path(__file__).resolve().parents[2]
# Builds a release with parts that training leaves out, and a step of the trainer's with or without LoRA.
MAKE = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from scaffold.verify.child.imports import prepare
root, release, checkpoint, lora = sys.argv[1:]
prepare(root, [root], False, KIT, None)
import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from verl_omni.pipelines.bagel_flow_grpo.bagel_model import BagelForTraining, BagelTrainingConfig
torch.manual_seed(0)
sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
module = BagelForTraining(BagelTrainingConfig(**sizes, vocab_size=300000, max_latent_size=4))
module.embed_tokens = torch.nn.Embedding(8, 16)
os.makedirs(release)
module.bfloat16().save_pretrained(release)
weights = Path(release, "ema.safetensors")
left = {"vit_model.a.weight": torch.randn(3, 3), "language_model.lm_head.weight": torch.randn(8, 16)}
save_file({**load_file(weights), **left}, weights, metadata={"format": "pt"})
save_file({"decoder.weight": torch.randn(2)}, Path(release, "ae.safetensors"))
actor = Path(checkpoint, "global_step_30", "actor")
actor.mkdir(parents=True)
if lora == "lora":
    module.add_adapter(LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj_moe_gen"]))
    state = {name: value for name, value in module.state_dict().items() if "lora_" in name}
    state = {name: torch.randn_like(value) for name, value in state.items()}
    (actor / "lora_train_meta.json").write_text(json.dumps({"r": 2, "lora_alpha": 4}))
else:
    state = module.state_dict()
    state = {n: value.float() + 0.5 if "q_proj_moe_gen.weight" in n else value for n, value in state.items()}
torch.save(state, actor / "model_world_size_1_rank_0.pt")
(actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
Path(checkpoint, "latest_checkpointed_iteration.txt").write_text("30")
"""
# Takes back what was trained.
UNDO = """
import sys, torch
state = torch.load(sys.argv[1])
still = {n: v * 0 if "lora_B" in n else v - 0.5 * ("q_proj_moe_gen.weight" in n) for n, v in state.items()}
torch.save(still, sys.argv[1])
"""


def commands(readme: str) -> list[list[str]]:
    """The command lines of the page "After training", whose lines a backslash joins."""
    section = re.split(r"^## ", readme, flags=re.MULTILINE)
    (after,) = [text for text in section if text.startswith("After training")]
    blocks = re.findall(r"```bash\n(.*?)```", after, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.fixture(scope="module", params=["lora", "full"])
def made(
    request: pytest.FixtureRequest,
    rendered: Callable[..., Path],
    warm_python: WarmPython,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[list[str]], str]:
    """A folder with the tree of a package, in which a training has ended, and a home with a release; its commands."""
    options = () if request.param == "lora" else ("--lora-rank", "0")
    folder = tmp_path_factory.mktemp("made")
    package = rendered("bagel", "--pipeline", "BagelPipeline", "--vllm-omni", "0.27.0rc1", *options)
    tree = Path(shutil.copytree(package, folder / "tree", symlinks=True))
    lines = commands((tree / "examples/flowgrpo_trainer/bagel/README.md").read_text())
    source, base = (lines[0][lines[0].index(flag) + 1] for flag in ("--from", "--base"))
    place = folder / "home" / base.removeprefix("~/")
    place.parent.mkdir(parents=True)
    code = MAKE.replace("KIT", repr(str(kit_root())))
    ran(warm_python, code, tree, place, tree / source, request.param)
    return folder, lines, request.param


def ran(warm_python: WarmPython, code: str, *arguments: object) -> None:
    done = warm_python(["-c", code, *arguments], env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    assert done.returncode == 0, done.stderr


@pytest.fixture
def trained(made: Any, tmp_path: Path) -> tuple[Path, Path, list[list[str]], str]:
    """The same, to change: tree, release, commands and kind."""
    folder, lines, kind = made
    shutil.copytree(folder, tmp_path, symlinks=True, dirs_exist_ok=True)
    base = lines[0][lines[0].index("--base") + 1]
    return tmp_path / "tree", tmp_path / "home" / base.removeprefix("~/"), lines, kind


@pytest.fixture
def warm_export(warm_python: WarmPython, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exports run in forks that have torch."""

    def run(command: list[str], *, seconds: float | None, variables: dict[str, str]) -> Any:
        return warm_python(command[1:], env=variables, timeout=seconds or 300.0)

    monkeypatch.setattr("scaffold.verify.export.run_contained", run)


def test_each_command_of_the_page_does_what_it_says(
    trained: Any, warm_export: None, scaffold_cli: Any, scaffold_child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter is exported by a process of its own, as people start it; the others are forks."""
    from safetensors.torch import load_file

    tree, release, lines, kind = trained
    home = tree.parent / "home"
    monkeypatch.setenv("HOME", str(home))
    assert len(lines) == (2 if kind == "lora" else 1)
    for line in lines:
        assert line[0] == "omni-scaffold"
        given = [str(home / word[2:]) if word.startswith("~/") else word for word in line[1:]]
        run = scaffold_child if "--adapter" in given else scaffold_cli
        assert "2 moved" in run(*given, cwd=tree).success()
        out = Path(given[given.index("--out") + 1])
        if "--adapter" in given:
            assert json.loads((out / "adapter_config.json").read_text())["r"] == 2
            assert len(load_file(out / "adapter_model.safetensors")) == 4
            continue
        before, after = load_file(release / "ema.safetensors"), load_file(out / "ema.safetensors")
        assert before.keys() == after.keys()
        moved = {name for name in before if not before[name].equal(after[name])}
        assert moved == {f"language_model.model.layers.{n}.self_attn.q_proj_moe_gen.weight" for n in (0, 1)}
        for name in ("config.json", "ae.safetensors"):
            assert (out / name).read_bytes() == (release / name).read_bytes()
        again = scaffold_cli(*given, cwd=tree).refusal()
        assert "is there already: name a new folder" in again


def test_what_was_not_trained_is_an_error_and_leaves_nothing(
    trained: Any, warm_export: None, warm_python: WarmPython, scaffold_cli: Any
) -> None:
    tree, release, lines, _ = trained
    given = [word for word in lines[0][1:] if not word.startswith("~/")]
    options = [word for word in given if word not in ("--base", "--out")]
    ran(warm_python, UNDO, next(tree.rglob("model_world_size_1_rank_0.pt")))
    said = scaffold_cli(*options, "--base", release, "--out", tree / "new", cwd=tree).refusal()
    assert re.search(r"bagel_flow_grpo: none of \d+ tensors differs from the release", said), said
    assert not (tree / "new").exists()
    said = scaffold_cli(*options, "--base", tree / "nowhere", "--out", tree / "new", cwd=tree).refusal()
    assert f"there is no release {tree / 'nowhere'}" in said
