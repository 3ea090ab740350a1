"""What stands around the adapters of a partial package: scripts, data, documentation, and the life in a checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from overruled import alter

from scaffold.errors import ScaffoldError
from scaffold.files.resources import RUNTIME

pytestmark = pytest.mark.upstream
VERSION = "0.30.0"
# What they make, and how the engine finds them: an image by the class's name, actions by a topology of one stage,
# sound behind another stage.
MODELS = {"omni_gen2": "OmniGen2Pipeline", "pi0": "Pi0Pipeline", "au_k": "AuKPipeline"}
TINY = {"omni_gen2"}  # with a tiny checkpoint of its own
ASKED = {
    "omni_gen2": set(),  # its release is known
    "pi0": {"MODEL_PATH", "TOKENIZER_PATH", "LORA_TARGETS", "REWARD_FUNCTION", "STEPS"},
    "au_k": {"MODEL_PATH", "TOKENIZER_PATH", "DEPLOY_CONFIG", "REWARD_FUNCTION"},
}


@dataclass(frozen=True)
class Tree:
    """A rendered package and what was planned for the files around it."""

    model: str
    root: Path
    spec: dict[str, Any]

    @property
    def launch(self) -> Path:
        (script,) = (self.root / "examples/flowgrpo_trainer" / self.model).glob("run_*.sh")
        return script

    @property
    def smoke(self) -> Path:
        return self.root / f"tests/special_e2e/run_flowgrpo_{self.model}.sh"


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tree]:
    from scaffold.new import NewRequest, plan_new

    found = {}
    for model, pipeline in MODELS.items():
        root = tmp_path_factory.mktemp("launch") / model
        result = plan_new(NewRequest(model, pipeline=pipeline, vllm_omni=VERSION, out=str(root), patch=True))
        result.plan.commit()
        found[model] = Tree(model, root, dict(result.spec.context()))
    return found


@pytest.fixture(params=MODELS)
def tree(request: pytest.FixtureRequest, trees: dict[str, Tree]) -> Tree:
    return trees[request.param]


def test_the_files_are_those_of_a_complete_package(tree: Tree, reference: Path) -> None:
    kinds = {
        re.sub(r"_(ocr|prompts)\b|_ocr(?=_lora)", "", path.relative_to(root).as_posix().replace(name, "NAME"))
        for root, name in ((reference, "bagel"),)
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    mine = {
        re.sub(
            r"_(ocr|prompts)\b|_ocr(?=_lora)", "", path.relative_to(tree.root).as_posix().replace(tree.model, "NAME")
        )
        for path in tree.root.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    # The sizes of a tiny checkpoint are a person's choice, where none is kept that the engine has loaded.
    lacking = set() if tree.model in TINY else {"tests/special_e2e/build_NAME_tiny_random.py"}
    if not tree.spec["deploy"].get("pipeline"):
        lacking.add("examples/flowgrpo_trainer/NAME/NAME_deploy_config.yaml")
    if tree.spec["media"]["kind"] not in ("image", "video"):
        lacking.add("tests/special_e2e/NAME_brightness.py")  # what cannot be bright is scored by the user's own
    # Of the runtime each has the modules that it reaches, and those that its scripts run.
    runtime = f"verl_omni/pipelines/{RUNTIME}/"
    assert {path for path in kinds - mine if not path.startswith(runtime)} == lacking
    assert {f"{runtime}{name}.py" for name in ("before_start", "export", "saved_config")} <= mine
    patch = (tree.root / "verl_omni.patch").read_text()
    in_ci = f"run_flowgrpo_{tree.model}.sh" in patch
    assert in_ci == (tree.model in TINY), "one that asks for a checkpoint is of no use where none is"
    assert f"+examples/{tree.model}/flowgrpo_trainer_{tree.model}.md" in patch


def started(script: Path, folder: Path, **variables: str) -> tuple[list[str], str]:
    """Run a script with a python3 that notes its arguments; return the trainer's, and what was complained of."""
    noted = folder / "noted"
    stand_in = folder / "python3"
    stand_in.write_text(f'#!/bin/bash\nfor word in "$@"; do printf "%s\\n" "$word" >> {noted}; done\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), **variables}
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    words = noted.read_text().splitlines() if noted.exists() else []
    begin = words.index("verl_omni.trainer.main_diffusion") if "verl_omni.trainer.main_diffusion" in words else -1
    return words[begin + 1 :] if done.returncode == 0 else [], done.stderr


def test_full_parameters_guidance_and_reward_as_options(trees: dict[str, Tree]) -> None:
    from scaffold.new.package import render_package
    from scaffold.new.recipe_options import RecipeOptions, guidance_of, with_options
    from scaffold.spec import read_spec

    specs = {
        model: read_spec(tree.root / f"verl_omni/pipelines/{model}_flow_grpo/scaffold.toml").spec
        for model, tree in trees.items()
    }
    name, value = next(iter(guidance_of(specs["omni_gen2"]).items()))
    spec = with_options(specs["omni_gen2"], RecipeOptions(lora_rank=0, guidance=(f"{name}={value + 1}",)))
    files, _ = render_package(spec, [])
    for path in (
        "examples/flowgrpo_trainer/omni_gen2/run_omni_gen2_ocr.sh",
        "tests/special_e2e/run_flowgrpo_omni_gen2.sh",
    ):
        assert "actor_rollout_ref.model.lora_rank=0\n" in files[path].content
        assert "actor_rollout_ref.actor.strategy=fsdp2\n" in files[path].content
    assert "examples/flowgrpo_trainer/omni_gen2/run_omni_gen2_ocr_lora.sh" not in files
    assert "run_omni_gen2_ocr.sh" in files["examples/flowgrpo_trainer/omni_gen2/README.md"].content
    common = files["verl_omni/pipelines/omni_gen2_flow_grpo/common.py"].content
    assert f'"{name}": {value + 1!r}' in common
    assert spec.value("guidance.defaults") == {name: value + 1}
    assert spec.value("cfg.defaults") is None
    with pytest.raises(ScaffoldError, match="--reward ocr reads words off pictures"):
        with_options(specs["au_k"], RecipeOptions(reward="ocr"))


@pytest.mark.parametrize("kind", ["launch", "smoke"])
def test_a_script_asks_for_each_thing_that_is_not_known(tree: Tree, kind: str, tmp_path: Path) -> None:
    script = tree.launch if kind == "launch" else tree.smoke
    given: dict[str, str] = {}
    asked: set[str] = set()
    for _ in range(12):
        words, complaint = started(script, tmp_path, **given)
        if words:
            break
        name = re.search(r": (\w+): set it to ", complaint)
        assert name is not None, complaint[-500:]
        assert name[1] not in asked
        asked.add(name[1])
        given[name[1]] = f"given-{name[1]}"
    else:
        pytest.fail(f"it asks on and on: {asked}")
    own = set() if tree.model in TINY else {"SAMPLE"}
    expected = ASKED[tree.model] | (own if kind == "smoke" else set())
    assert asked == expected - ({"STEPS"} if kind == "smoke" else set())
    overrides = dict(word.lstrip("+").partition("=")[::2] for word in words)
    released = f"{tmp_path}/models/{'OmniGen2' if kind == 'launch' else 'tiny-random'}/OmniGen2"
    assert overrides["actor_rollout_ref.model.path"] == given.get("MODEL_PATH", released)
    assert overrides["actor_rollout_ref.model.architecture"] == tree.spec["names"]["architecture"]
    if tree.model == "omni_gen2":
        assert "before_start.py --denoiser transformer --more-steps=0 -- " in script.read_text()
        assert overrides["actor_rollout_ref.rollout.engine_kwargs.vllm_omni.model_class_name"] == "OmniGen2Pipeline"
        assert overrides["actor_rollout_ref.rollout.layered_summon"] == "True"
    else:
        assert overrides["reward.custom_reward_function.path"] == "given-REWARD_FUNCTION"
        assert overrides["actor_rollout_ref.rollout.agent.default_agent_loop"] == f"{tree.model}_flow_grpo"
        assert overrides["actor_rollout_ref.rollout.engine_kwargs.vllm_omni.deploy_config"].endswith(
            "pi0_deploy_config.yaml" if tree.model == "pi0" else "given-DEPLOY_CONFIG"
        )


def test_lora_goes_where_the_layers_are(trees: dict[str, Tree]) -> None:
    lora = trees["omni_gen2"].spec["lora"]
    assert lora["layer_prefixes"] == ["noise_refiner.", "ref_image_refiner.", "context_refiner.", "layers."]
    assert {"to_q", "to_k", "to_v", "to_out.0"} <= set(lora["targets"])
    # Outside of the layers, other modules have a linear_1 too.
    assert "linear_1" not in lora["targets"]
    assert "feed_forward.linear_1" in lora["targets"]
    assert trees["pi0"].spec["lora"]["targets"] == []


def test_the_deploy_configuration_is_that_of_the_one_stage(trees: dict[str, Tree]) -> None:
    path = trees["pi0"].root / "examples/flowgrpo_trainer/pi0/pi0_deploy_config.yaml"
    content = yaml.safe_load(path.read_text())
    (stage,) = content["stages"]
    assert content["pipeline"] == "pi0"
    assert stage["model_class_name"] == "Pi0Pipeline"
    assert stage["model_config"]["chunk_size"] == 50


@pytest.mark.parametrize("tree", ["omni_gen2", "pi0"], indirect=True)
def test_data_keeps_what_a_request_takes(tree: Tree, tmp_path: Path) -> None:
    if tree.model == "omni_gen2":
        script = tree.root / "examples/flowgrpo_trainer/data_process/omni_gen2_ocr.py"
        for split in ("train", "test"):
            (tmp_path / f"{split}.txt").write_text('a sign that says "HELLO"\n')
    else:
        script = tree.root / f"examples/flowgrpo_trainer/data_process/{tree.model}_prompts.py"
        for split in ("train", "test"):
            line = json.dumps({"prompt": "lift the cup", "state": [0.5, 1.0], "ground_truth": 3})
            (tmp_path / f"{split}.jsonl").write_text(line + "\n\n")
    command = [sys.executable, script, "--input_dir", tmp_path, "--output_dir", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    import pyarrow.parquet

    (row,) = pyarrow.parquet.read_table(tmp_path / "out/train.parquet").to_pylist()
    assert "prompt_token_ids" not in row
    if tree.model == "omni_gen2":
        assert row["prompt"] == [{"role": "user", "content": 'a sign that says "HELLO"'}]
        assert row["reward_model"]["ground_truth"] == "HELLO"
        return
    assert row["prompt"] == [{"role": "user", "content": "lift the cup"}]
    assert json.loads(row["extra_info"]["inputs"]) == {"state": [0.5, 1.0]}
    (tmp_path / "train.jsonl").write_text('{"prompt": "lift"}\n{"text": "no prompt"}\n')
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "train.jsonl:2: no text under 'prompt'" in done.stderr


def test_the_readme_says_in_which_order_and_how_to_see_progress(tree: Tree) -> None:
    readme = (tree.root / tree.spec["target"]["example_readme"]).read_text()
    missing = tree.spec["grade"]["missing"]
    places = [readme.index(f"| {i} | {entry['what'].replace('|', '')[:20]}") for i, entry in enumerate(missing, 1)]
    assert places == sorted(places)
    for command in ("omni-scaffold check", "omni-scaffold verify", "python3 -m pytest"):
        assert f"{command} " in readme
    for name in ASKED[tree.model]:
        assert f"| `{name}` |" in readme
    assert not re.search(r"\{\{|\{%|None|\n\n\n\n", readme)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('behind = "auk"', 'behind = "auk$(touch x)"'),
        ('kind = "audio"', 'kind = "smell"'),
        ("prepared = []", 'prepared = ["audio`id`"]'),
    ],
)
def test_an_edited_value_cannot_become_a_command(
    trees: dict[str, Tree], line: str, complaint: str, tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    package = trees["au_k"].root / "verl_omni/pipelines/au_k_flow_grpo"
    shutil.copy(package / "scaffold.lock.toml", tmp_path)
    shutil.copy(package / "scaffold.toml", tmp_path / "edited.toml")
    alter(tmp_path / "edited.toml", line, complaint)
    out = scaffold_cli("new", "au_k", "--spec", tmp_path / "edited.toml", "--patch", "--out", tmp_path / "out")
    assert "it must be " in out.refusal(2)
    assert not (tmp_path / "out").exists()


def test_its_life_in_a_checkout(
    scaffold_cli: Callable[..., Any],
    python_file: Callable[[Path, str], Any],
    tree_of: Callable[[Path], dict[str, Any]],
    tmp_path: Path,
) -> None:
    """`new` wires it, a second time changes nothing, nor does `update`; `remove` leaves the checkout as it was."""
    standins = python_file(Path(__file__).parents[1] / "lifecycle/checkout_standins.py", "standins_of_grade")
    root = standins.write_standin(tmp_path / "checkout", "main")
    pins = root / "pyproject.toml"
    pins.write_text(pins.read_text().replace("vllm-omni==0.27.0rc1", f"vllm-omni=={VERSION}"))
    before = tree_of(root)
    new = ("new", "gr00t", "--pipeline", "Gr00tN1d7Pipeline", "--verl-omni", root)
    scaffold_cli(*new).success()
    after = tree_of(root)
    package = "verl_omni/pipelines/gr00t_flow_grpo"
    assert {f"{package}/scaffold.toml", f"{package}/scaffold.lock.toml"} <= set(after)
    assert b"run_flowgrpo_gr00t.sh" not in after[standins.RUNNERS["main"]][2], "no CI could run it"
    assert "nothing to do" in scaffold_cli(*new).success()
    updated = scaffold_cli("update", root / package, "--vllm-omni", VERSION)
    assert (updated.code, updated.err) == (1, "")  # what `check` still finds
    assert tree_of(root) == after
    scaffold_cli("remove", root / package).success()
    assert tree_of(root) == before
