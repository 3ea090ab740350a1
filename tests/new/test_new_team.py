"""Presets of a team go before the packaged ones, are recorded, and can run nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.spec import read_spec

Cli = Callable[..., Any]
pytestmark = pytest.mark.upstream
NEW = ("new", "toy", "--pipeline", "BagelPipeline", "--vllm-omni", "0.27.0rc1")
PACKAGE = "verl_omni/pipelines/toy_flow_grpo"
PRESET = 'pipelines = ["BagelPipeline"]\nbase = "bagel"\n[recipe]\nnoise_level = 0.55\n'


@pytest.fixture(scope="module")
def written(python_file: Callable[[Path, str], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in of verl-omni's main."""
    module = python_file(Path(__file__).parents[1] / "lifecycle" / "checkout_standins.py", "standins_of_lifecycle")
    root: Path = module.write_standin(tmp_path_factory.mktemp("team") / "checkout", "main", git=False)
    return root


@pytest.fixture
def checkout(written: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(written, tmp_path / "checkout", symlinks=True))


def put(root: Path, name: str, text: str) -> Path:
    path = root / ".omni-scaffold" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def spec_of(root: Path) -> dict[str, Any]:
    return tomli.loads((root / PACKAGE / "scaffold.toml").read_text())


def lock_of(root: Path) -> dict[str, Any]:
    return tomli.loads((root / PACKAGE / "scaffold.lock.toml").read_text())


def test_a_preset_of_the_checkout_counts_and_is_recorded(checkout: Path, scaffold_cli: Cli) -> None:
    path = put(checkout, "presets/bagel.toml", PRESET)
    scaffold_cli(*NEW, "--verl-omni", checkout).success()
    assert spec_of(checkout)["recipe"]["noise_level"] == 0.55
    assert spec_of(checkout)["cfg"]["defaults"]["cfg_text_scale"] == 4.0, "the rest is that of its base"
    lock = lock_of(checkout)
    assert "recipe.noise_level" in lock["provenance"]["preset bagel"]
    where, digest = lock["overrides"]["presets/bagel.toml"].split()
    assert (where, digest) == ("checkout", subprocess.check_output(["sha256sum", path], text=True).split()[0])


def test_an_update_follows_the_preset_and_keeps_what_a_person_set(checkout: Path, scaffold_cli: Cli) -> None:
    put(checkout, "presets/bagel.toml", PRESET)
    scaffold_cli(*NEW, "--verl-omni", checkout).success()
    spec = checkout / PACKAGE / "scaffold.toml"
    spec.write_text(spec.read_text().replace("learning_rate = 0.0001", "learning_rate = 0.0002"))
    put(checkout, "presets/bagel.toml", PRESET.replace("0.55", "0.6"))
    said = scaffold_cli("update", checkout / PACKAGE).success()
    assert "the preset, changes recipe.noise_level\n" in said
    assert "recipe.noise_level 0.55 to 0.6 in README.md, " in said
    recipe = spec_of(checkout)["recipe"]
    assert (recipe["noise_level"], recipe["learning_rate"]) == (0.6, 0.0002)
    (checkout / ".omni-scaffold/presets/bagel.toml").unlink()
    gone = scaffold_cli("update", checkout / PACKAGE)
    assert gone.code == 4
    assert "rendered with presets/bagel.toml (checkout), which is not there; nothing was written" in gone.err
    assert spec_of(checkout)["recipe"]["noise_level"] == 0.6
    scaffold_cli("update", checkout / PACKAGE, "--packaged").success()
    assert spec_of(checkout)["recipe"]["noise_level"] == 0.7
    assert "overrides" not in lock_of(checkout)


def test_a_preset_of_the_user_may_be_a_link(
    checkout: Path, scaffold_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(PRESET)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place = tmp_path / "config/omni-scaffold/presets/bagel.toml"
    place.parent.mkdir(parents=True)
    place.symlink_to(mine)
    scaffold_cli(*NEW, "--verl-omni", checkout).success()
    assert spec_of(checkout)["recipe"]["noise_level"] == 0.55


def test_a_preset_that_is_named_goes_before_all(checkout: Path, scaffold_cli: Cli, tmp_path: Path) -> None:
    put(checkout, "presets/bagel.toml", PRESET)
    mine = tmp_path / "mine.toml"
    mine.write_text(PRESET.replace("0.55", "0.4"))
    scaffold_cli(*NEW, "--verl-omni", checkout, "--preset", mine).success()
    assert spec_of(checkout)["recipe"]["noise_level"] == 0.4
    assert lock_of(checkout)["overrides"]["presets/mine.toml"].startswith("file ")
    assert "name the preset with --preset FILE" in scaffold_cli("update", checkout / PACKAGE, "--dry-run").err
    answer = json.loads(
        scaffold_cli("update", checkout / PACKAGE, "--preset", mine, "--dry-run", "--format", "json").success()
    )
    assert {change["action"] for change in answer["changes"]} == {"same"}
    assert "exclude each other" in scaffold_cli(*NEW, "--verl-omni", checkout, "--preset", mine, "--packaged").refusal()


def test_links_pipes_and_large_files_of_a_checkout_are_not_read(
    checkout: Path, scaffold_cli: Cli, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.toml"
    secret.write_text('[names]\ndisplay = "TOPSECRET"\n')
    path = put(checkout, "presets/bagel.toml", "")
    for make in (
        lambda: path.symlink_to(secret),
        lambda: os.mkfifo(path),
        lambda: path.write_bytes(b"#" * 2_000_000),
        lambda: path.write_bytes(b"\xff\xfe"),
    ):
        path.unlink()
        make()
        outcome = scaffold_cli(*NEW, "--verl-omni", checkout, "--dry-run")
        assert outcome.code == 2
        assert ".omni-scaffold/presets/bagel.toml" in outcome.err
        assert "TOPSECRET" not in outcome.out + outcome.err


def test_folders_and_manifests_of_a_checkout_lead_nowhere_else(
    checkout: Path, scaffold_cli: Cli, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "manifests").mkdir(parents=True)
    (elsewhere / "manifests/secret.json").write_text('{"TOPSECRET": 1}')
    for target in (elsewhere, Path("/")):
        put(checkout, "presets", "").unlink()
        (checkout / ".omni-scaffold/presets").symlink_to(target)
        said = scaffold_cli("preset", "list", "--verl-omni", checkout).refusal()
        assert ".omni-scaffold/presets is a link that leads out of its tree" in said
        (checkout / ".omni-scaffold/presets").unlink()
    put(checkout, "presets/bagel.toml", 'pipelines = ["BagelPipeline"]\nbase = "bagel"\nmanifest = "secret.json"\n')
    put(checkout, "presets/manifests/secret.json", "").unlink()
    (checkout / ".omni-scaffold/presets/manifests/secret.json").symlink_to(elsewhere / "manifests/secret.json")
    said = scaffold_cli(*NEW, "--verl-omni", checkout, "--dry-run").refusal()
    assert "secret.json: is a link that leads out of its tree" in said
    assert "TOPSECRET" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "is not TOML"),
        ("pipelines = 3", "pipelines is not a list"),
        ('manifest = "../x.json"', "manifest is not a file name"),
        ('manifest = ".."', "manifest is not a file name"),
        ('manifest = "a\\u0000.json"', "manifest is not a file name"),
        ('base = "begal"', "no packaged preset is called 'begal'; base is one of bagel"),
        ("[recipes]\n", "a preset has no [recipes]; did you mean recipe?"),
        ("[recipe]\nnoise_levl = 0.5", "a preset has no recipe.noise_levl; did you mean noise_level?"),
        ('[recipe]\nnoise_level = "0.5"', "recipe.noise_level is '0.5'; it must be a number"),
        ("[names]\ndisplay = 3", "names.display is 3; it must be text"),
        ("[cfg]\ndefaults = 3", "cfg.defaults is 3; it must be a table"),
        ("[tokens]\nstart_of_image = 3", "tokens.start_of_image is 3; it must be a table"),
        ('base = "bagel"\n[checkpoint.root_config]\nlatent_patch_size = 3', "a value does not fit [latents]"),
        ('base = "bagel"\n[checkpoint]\ndrop_reasons = { "vit_model." = 3 }', "bagel.toml"),
    ],
)
def test_a_preset_that_says_something_else_is_one_line(checkout: Path, scaffold_cli: Cli, text: str, said: str) -> None:
    put(checkout, "presets/bagel.toml", text)
    outcome = scaffold_cli(*NEW, "--verl-omni", checkout, "--dry-run")
    assert outcome.code == 2, outcome.out + outcome.err
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_preset_to_begin_with(checkout: Path, scaffold_cli: Cli) -> None:
    """It changes nothing as it is, nor with every value of its tables taken in."""
    scaffold_cli(*NEW, "--verl-omni", checkout).success()
    before = {key: value for key, value in spec_of(checkout).items() if key != "schema"}
    scaffold_cli("remove", checkout / PACKAGE).success()
    said = scaffold_cli("preset", "new", "BagelPipeline", "--vllm-omni", "0.27.0rc1", cwd=checkout).success()
    assert (
        "next: edit it, then `omni-scaffold new bagel --pipeline BagelPipeline --vllm-omni 0.27.0rc1 --dry-run`" in said
    )
    path = checkout / ".omni-scaffold/presets/bagel.toml"
    text = path.read_text()
    tomli.loads(text)
    for wanted in ("noise_level = 0.7", "cfg_text_scale = 4.0", "rank = 64", 'base = "bagel"'):
        assert wanted in text
    for given in (text, re.sub(r"^# (?=\w+ = )", "", text.partition("# Where the released")[0], flags=re.MULTILINE)):
        path.write_text(given)
        scaffold_cli(*NEW, "--verl-omni", checkout).success()
        assert {key: value for key, value in spec_of(checkout).items() if key != "schema"} == before
        scaffold_cli("remove", checkout / PACKAGE).success()
    path.write_text("mine = 1\n")
    outcome = scaffold_cli("preset", "new", "BagelPipeline", "--vllm-omni", "0.27.0rc1", cwd=checkout)
    assert outcome.code == 4
    assert path.read_text() == "mine = 1\n"


def test_a_preset_to_begin_with_of_a_pipeline_without_one(
    tmp_path: Path, scaffold_cli: Cli, rendered: Callable[..., Path]
) -> None:
    out = tmp_path / "own.toml"
    command = ("preset", "new", "OmniGen2Pipeline", "--vllm-omni", "0.30.0", "--out", out, "--format", "json")
    answer = json.loads(scaffold_cli(*command).success())
    assert (answer["schema"], answer["written"]) == (1, True)
    text = out.read_text()
    assert tomli.loads(text)["pipelines"] == ["OmniGen2Pipeline"]
    assert re.search(r"^# \w+ = .*# vllm-omni's default, vllm_omni/.*:\d+$", text, re.MULTILINE)
    package = rendered("omnigen2", "--pipeline", "OmniGen2Pipeline", "--vllm-omni", "0.30.0")
    used = read_spec(next(package.glob("verl_omni/pipelines/*/scaffold.toml"))).spec.sections["recipe"]
    stated = tomli.loads(re.sub(r"^# ", "", text.partition("[recipe]\n")[2].partition("\n[")[0], flags=re.MULTILINE))
    assert stated == {name: "?" if used[name] is None else used[name] for name in stated}
    assert stated["num_inference_steps"] == 28
    assert "say where the preset goes" in scaffold_cli("preset", "new", "OmniGen2Pipeline", cwd=tmp_path).refusal()
