"""Options of the recipe end in the spec, in the scripts, and stay there through an update; dates are the day's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.errors import ScaffoldError
from scaffold.new.recipe_options import RecipeOptions, with_options, with_reward_found
from scaffold.render import render
from scaffold.spec import IntegrationSpec

pytestmark = pytest.mark.upstream
GIVEN = ("--reward", "pickscore", "--gpus", 8, "--lora-rank", 16, "--resolution", "768x512")
BAGEL = ("new", "bagel", "--vllm-omni", "0.27.0rc1")
PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
SCRIPT = "examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh"


@pytest.fixture(scope="module")
def out(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package rendered with every option."""
    folder = tmp_path_factory.mktemp("options") / "out"
    scaffold_cli(*BAGEL, *GIVEN, "--patch", "--out", folder).success()
    return folder


def test_options_stand_in_spec_and_scripts(out: Path) -> None:
    spec = tomli.loads((out / PACKAGE / "scaffold.toml").read_text())
    recipe = spec["recipe"]
    provenance = tomli.loads((out / PACKAGE / "scaffold.lock.toml").read_text())["provenance"]
    assert (recipe["gpus"], recipe["width"], recipe["height"]) == (8, 768, 512)
    assert (spec["lora"]["rank"], spec["lora"]["alpha"]) == (16, 32), "the adapter keeps its scale"
    assert provenance["flag --gpus"] == "recipe.gpus"
    assert "lora.rank" in provenance["flag --lora-rank"]
    script = (out / SCRIPT).read_text()
    assert "reward.custom_reward_function.path=pkg://verl_omni.utils.reward_score.pickscore_reward\n" in script
    assert "reward.custom_reward_function.name=compute_score_pickscore\n" in script
    assert "reward.reward_model.enable=False" in script
    assert "REWARD_TP" not in script
    assert "NUM_GPUS=${NUM_GPUS:-8}" in script
    assert "lora_rank=16" in script
    assert "compute_score_pickscore" in (out / "examples/flowgrpo_trainer/bagel/README.md").read_text()


def test_an_update_keeps_them(out: Path, scaffold_cli: Callable[..., Any]) -> None:
    answer = json.loads(scaffold_cli("update", out / PACKAGE, "--dry-run", "--format", "json").success())
    assert {change["action"] for change in answer["changes"]} == {"same"}


def test_full_parameters(reference_spec: IntegrationSpec) -> None:
    spec = with_options(reference_spec, RecipeOptions(lora_rank=0))
    assert spec.value("lora.rank") == 0
    files = render(spec)
    assert SCRIPT not in files
    for path in ("examples/flowgrpo_trainer/bagel/run_bagel_ocr.sh", "tests/special_e2e/run_flowgrpo_bagel.sh"):
        script = files[path].content
        assert "actor_rollout_ref.model.lora_rank=0\n" in script
        assert "actor_rollout_ref.actor.strategy=fsdp2\n" in script
        assert "actor_rollout_ref.rollout.layered_summon=False\n" in script
        assert "target_modules" not in script
        assert "with LoRA" not in script
    page = files["examples/flowgrpo_trainer/bagel/README.md"].content
    assert "run_bagel_ocr.sh\n" in page
    assert "memory of a GPU | not measured" in page
    assert "LoRA adapters" not in page
    back = with_options(spec, RecipeOptions(lora_rank=32))
    assert (back.value("lora.rank"), back.value("lora.alpha")) == (32, 64)
    old = replace_target(reference_spec, trainable_params_hook=False)
    with pytest.raises(ScaffoldError, match="asks no package what to train"):
        with_options(old, RecipeOptions(lora_rank=0))


def replace_target(spec: IntegrationSpec, **values: object) -> IntegrationSpec:
    """The spec for a release with other features."""
    return replace(spec, sections={**spec.sections, "target": {**spec.sections["target"], **values}})


@pytest.mark.slow
def test_a_package_of_full_parameters_passes(warm: None, scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    scaffold_cli(*BAGEL, "--lora-rank", 0, "--guidance", "cfg_text_scale=3", "--patch", "--out", out).success()
    scaffold_cli("check", out / PACKAGE).success()
    scaffold_cli("verify", out / PACKAGE).success()


def test_guidance_of_a_recipe(reference_spec: IntegrationSpec) -> None:
    given = ("cfg_text_scale=3", "cfg_interval=[0.4, 1]", "cfg_renorm_type=channel")
    spec = with_options(reference_spec, RecipeOptions(guidance=given))
    values = spec.value("cfg.defaults")
    assert values["cfg_text_scale"] == 3.0
    assert isinstance(values["cfg_text_scale"], float)
    assert values["cfg_interval"] == [0.4, 1.0]
    assert values["cfg_img_scale"] == 1.0
    assert spec.provenance["cfg.defaults"] == "flag --guidance"
    common = render(spec)[f"{PACKAGE}/common.py"].content
    assert '"cfg_text_scale": 3.0,' in common
    assert '"cfg_renorm_type": "channel",' in common


def test_a_spec_excludes_them(out: Path, scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    command = ("new", "bagel", "--spec", out / PACKAGE / "scaffold.toml", "--patch", "--out", tmp_path, "--gpus", 4)
    assert "--gpus and --spec exclude each other" in scaffold_cli(*command).refusal()


def test_a_function_of_ones_own(reference_spec: IntegrationSpec) -> None:
    spec = with_options(reference_spec, RecipeOptions(reward="$(date).py:score"))
    assert "custom_reward_function.path='$(date).py'\n" in render(spec)[SCRIPT].content
    spec = with_options(reference_spec, RecipeOptions(reward="rewards/mine.py:score"))
    script = render(spec)[SCRIPT].content
    assert "reward.custom_reward_function.path=rewards/mine.py\n" in script
    assert "reward.custom_reward_function.name=score\n" in script
    assert with_options(reference_spec, RecipeOptions(reward="ocr")) == reference_spec


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    """A folder with a file that has a reward function."""
    (tmp_path / "mine.py").write_text("import other\n\nasync def score(image):\n    return 1.0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("yours.py:score", "there is no file yours.py"),
        ("mine.py:scores", "mine.py has no scores; did you mean score?"),
        ("broken.py:score", "is no Python"),
    ],
)
def test_a_function_that_is_not_there_is_refused(
    scaffold_cli: Callable[..., Any], rewards: Path, given: str, told: str
) -> None:
    (rewards / "broken.py").write_text("def score(:\n")
    said = scaffold_cli(*BAGEL, "--reward", given, "--out", rewards / "out", "--dry-run", cwd=rewards).refusal()
    assert told in said
    assert not (rewards / "out").exists()


def test_a_function_is_found_in_the_tree_or_here(rewards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (rewards / "tree/rewards").mkdir(parents=True)
    (rewards / "tree/rewards/own.py").write_text("from elsewhere import score\n")
    monkeypatch.chdir(rewards)
    found = {
        given: with_reward_found(RecipeOptions(reward=given), rewards / "tree").reward
        for given in ("rewards/own.py:score", "mine.py:score", "tree/rewards/own.py:score", "pkg://any:f", "ocr")
    }
    assert found == {
        "rewards/own.py:score": "rewards/own.py:score",
        "mine.py:score": f"{rewards / 'mine.py'}:score",
        "tree/rewards/own.py:score": "rewards/own.py:score",
        "pkg://any:f": "pkg://any:f",
        "ocr": "ocr",
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"reward": "beauty"}, "give ocr, pickscore, or FILE:FUNCTION"),
        ({"reward": "mine.py:not a name"}, "give ocr, pickscore"),
        ({"gpus": 3}, "does not divide the 256 images of an update; 2 GPUs would do"),
        ({"guidance": ("cfg_text_scale",)}, "is not a NAME=VALUE"),
        ({"guidance": ("scale=3",)}, "there is cfg_text_scale, cfg_img_scale"),
        ({"guidance": ("cfg_text_scale=nan",)}, "of another kind"),
        ({"guidance": ("cfg_text_scale=Infinity",)}, "of another kind"),
        ({"guidance": ("cfg_interval=[1.0]",)}, "of another kind; a value such as [0.0, 1.0]"),
        ({"guidance": ("cfg_renorm_type=globl",)}, "none of the kinds there are"),
        ({"resolution": "big"}, "is not a size"),
        ({"resolution": "500"}, "not a multiple of 16"),
        ({"resolution": "512x2048"}, "positions for 1024 pixels"),
    ],
)
def test_what_a_recipe_cannot_have_is_refused(
    reference_spec: IntegrationSpec, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ScaffoldError, match="--") as raised:
        with_options(reference_spec, RecipeOptions(**options))
    assert told in raised.value.line


def test_fewer_gpus_than_the_reward_wants(reference_spec: IntegrationSpec) -> None:
    spec = with_options(reference_spec, RecipeOptions(gpus=2))
    assert (spec.value("recipe.gpus"), spec.value("recipe.reward_gpus")) == (2, 2)


def test_dates_are_the_day_and_a_second_run_keeps_them(
    scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*more: object, epoch: str = "1") -> dict[str, Any]:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        answer = json.loads(
            scaffold_cli(*BAGEL, "--patch", "--out", tmp_path / "out", "--format", "json", *more).success()
        )
        return dict(answer)

    run()
    page = tmp_path / "out/examples/flowgrpo_trainer/bagel/README.md"
    assert "Last updated: 01/01/1970\n" in page.read_text()
    assert {change["action"] for change in run(epoch="99999999")["changes"]} == {"same"}
    run("--date", "02/03/2025", "--force")
    assert "Last updated: 02/03/2025\n" in page.read_text()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    refused = scaffold_cli(*BAGEL, "--patch", "--out", tmp_path / "other").refusal()
    assert "SOURCE_DATE_EPOCH is 'soon'" in refused
