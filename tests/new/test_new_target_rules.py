"""The rendered tree meets the rules of the repository that receives it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml

from scaffold.files.resources import PACKAGE_ROOT, templates_root

HEADER = "# Copyright 2026 Bytedance Ltd. and/or its affiliates\n#\n# Licensed under the Apache License, Version 2.0"
RULES = ["--select", "E,F,UP,B,I,G", "--ignore", "F405,F403,E731,B007,UP032,G004,UP045,UP035"]
STYLE = ["--config", "line-length=120", "--config", 'lint.isort.known-first-party=["verl_omni"]']
RELEASES = ["golden", "v0.1.0", "v0.2.0", "main", "v0.3.0"]


@pytest.fixture(
    params=[pytest.param(name, marks=[] if name == "golden" else pytest.mark.upstream) for name in RELEASES]
)
def tree(request: pytest.FixtureRequest) -> Path:
    """Return the golden folder, or the output for one release."""
    if request.param == "golden":
        golden: Path = request.getfixturevalue("reference")
        return golden
    trees: dict[str, Path] = request.getfixturevalue("release_trees")
    return trees[request.param]


def python_files(tree: Path) -> list[Path]:
    """Return the Python files, of which there are some."""
    found = sorted(tree.rglob("*.py"))
    assert len(found) > 8
    return found


def test_ruff_with_the_targets_settings(tree: Path) -> None:
    base = [sys.executable, "-m", "ruff"]
    options = ["--no-cache", "--isolated", *STYLE]
    for command in (["check", *RULES], ["format", "--check"]):
        done = subprocess.run([*base, *command, *options, "."], cwd=tree, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert (
        len(subprocess.run([*base, "check", "--isolated", "--show-files"], cwd=tree, capture_output=True).stdout) > 99
    )


def test_python_compiles_without_a_warning(tree: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in python_files(tree):
            compile(path.read_text(encoding="utf-8"), path.name, "exec")


def test_every_python_file_has_the_licence(tree: Path) -> None:
    for path in python_files(tree):
        assert path.read_text(encoding="utf-8").startswith(HEADER), path.name


def test_shell_scripts_parse_and_may_be_executed(tree: Path) -> None:
    scripts = sorted(tree.rglob("*.sh"))
    assert len(scripts) == 2
    for path in scripts:
        assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
        assert path.stat().st_mode & 0o111, path.name
        assert path.read_text().startswith("#!")
    for path in python_files(tree):
        assert not path.stat().st_mode & 0o111, path.name


def test_yaml_loads(tree: Path) -> None:
    files = sorted(tree.rglob("*.yaml"))
    assert files
    for path in files:
        assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_no_device_is_named_in_the_package(tree: Path) -> None:
    for path in (tree / "verl_omni").rglob("*.py"):
        text = path.read_text()
        for word in (".cuda", '"cuda"', "'cuda'", "nccl"):
            assert word not in text, f"{path.name}: {word}"


def test_documentation_is_dated_and_linked(tree: Path) -> None:
    readme = tree / "examples/flowgrpo_trainer/bagel/README.md"
    assert re.search(r"^Last updated: \d\d/\d\d/\d{4}$", readme.read_text(), re.MULTILINE)
    links = [path for path in tree.rglob("*") if path.is_symlink()]
    # v0.1.0 has no linked example pages.
    assert len(links) == (1 if (tree / "docs").exists() else 0)
    for link in links:
        assert link.resolve() == readme.resolve()
        assert not link.readlink().is_absolute()
        patch = (tree / "verl_omni.patch").read_text()
        assert f"+{link.relative_to(tree / 'docs').as_posix()}\n" in patch


@pytest.mark.parametrize("word", ["veRL", "Sglang", "sgLang", "sglAng", "sglaNg", "sglanG"])
def test_names_are_spelled_as_the_repository_wants(tree: Path, word: str) -> None:
    for path in tree.rglob("*"):
        assert word not in path.name
        if path.is_file():
            assert word not in path.read_text(), path.name


def test_links_of_the_readme_lead_to_files_of_the_package_or_the_target(tree: Path) -> None:
    readme = tree / "examples/flowgrpo_trainer/bagel/README.md"
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", " ".join(readme.read_text().split()))
    assert links
    known = {"docs/contributing/integrating_a_non_diffusers_model.md", "docs/start/install.md"}
    for link in links:
        path = (readme.parent / link).resolve()
        assert path.exists() or path.relative_to(tree.resolve()).as_posix() in known, link


def test_files_end_in_one_newline_and_have_no_trailing_space(tree: Path) -> None:
    for path in tree.rglob("*"):
        if path.is_file() and path.suffix != ".patch":
            text = path.read_bytes().decode()
            assert text.endswith("\n"), path.name
            assert not text.endswith("\n\n"), path.name
            assert "\r" not in text, path.name
            assert "\t" not in text, path.name
            assert not re.search(r"[ ]+$", text, re.MULTILINE), path.name


def test_public_classes_and_functions_of_the_package_have_docstrings(tree: Path) -> None:
    overriding = {"build_module", "build_scheduler", "set_timesteps", "prepare_model_inputs", "forward"}
    overriding |= {"forward_and_sample_previous_step"}
    for path in (tree / "verl_omni/pipelines/bagel_flow_grpo").rglob("*.py"):
        tree_of_file = ast.parse(path.read_text())
        classes = [node for node in tree_of_file.body if isinstance(node, ast.ClassDef)]
        for owner in [tree_of_file, *classes]:
            for node in owner.body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                    assert node.name in overriding or ast.get_docstring(node), f"{path.name}: {node.name}"


def test_checklist_of_the_guide_is_met_by_name(tree: Path) -> None:
    package = tree / "verl_omni/pipelines/bagel_flow_grpo"
    model, training, rollout = (
        (package / name).read_text()
        for name in ("bagel_model.py", "diffusers_training_adapter.py", "vllm_omni_rollout_adapter.py")
    )
    for text in ("class BagelTrainingConfig(SavedSizes)", "def from_model_path", "_checkpointed_call("):
        assert text in model
    for text in (
        "class BagelForTraining(ComposedModule, NonDiffusersModelBase)",
        '_no_split_modules = ["BagelMoTLayer"]',
    ):
        assert text in model
    assert '"ema.safetensors"' in model
    assert "strict=False" not in model + training + rollout
    register = 'register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")'
    assert f"@DiffusionModelBase.{register}" in training
    assert f"@VllmOmniPipelineBase.{register}" in rollout
    assert re.search(r"class BagelPipelineWithLogProb\(composed_rollout\.\w+Rollout, BagelPipeline\):", rollout)
    for text in ("class _BagelSchedulerAdapter(ComposedScheduler)", "PROMPTS = PromptForm("):
        assert text in rollout
    assert "encoded_prompts(micro_batch" in training
    init = (package / "__init__.py").read_text()
    assert '__all__ = ["BagelDiffusion", "BagelPipelineWithLogProb"]' in init
    data = (tree / "examples/flowgrpo_trainer/data_process/bagel_ocr.py").read_text()
    assert "def tokenize_bagel_prompt(" in data
    for name in ("run_bagel_ocr_lora.sh", "bagel_deploy_config.yaml"):
        assert (tree / "examples/flowgrpo_trainer/bagel" / name).is_file()


def test_no_template_and_no_code_of_the_tool_knows_a_model() -> None:
    presets = PACKAGE_ROOT / "presets"
    # What releases of the target contain is data about the target.
    releases = PACKAGE_ROOT / "target/profiles"
    # And what an environment was tried with is data about a release of vllm-omni.
    tried = PACKAGE_ROOT / "verify/rollout/environments"
    for root in (templates_root(), PACKAGE_ROOT):
        for path in sorted(root.rglob("*")):
            if "__pycache__" in path.parts or {presets, releases, tried} & {*path.parents}:
                continue
            assert "bagel" not in path.name.lower(), path
            if path.is_file():
                assert b"bagel" not in path.read_bytes().lower(), path


def test_profiles_name_the_model_as_a_package_of_the_target_only() -> None:
    for path in (PACKAGE_ROOT / "target/profiles").glob("*.toml"):
        values = path.read_text().lower().partition("[sketch.")[0]  # below stand lines of the target's own files
        assert set(re.findall(r"\w*bagel\w*", values)) <= {"bagel_flow_grpo", "bagelpipeline"}
