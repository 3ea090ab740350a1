"""Releases of verl-omni with the vllm-omni that each pins: the output differs where they do."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.spec import read_spec

pytestmark = pytest.mark.upstream

PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
ROLLOUT = f"{PACKAGE}/vllm_omni_rollout_adapter.py"
TRAINING = f"{PACKAGE}/diffusers_training_adapter.py"
WORKER = f"{PACKAGE}/vllm_omni_worker_extension.py"
README = "examples/flowgrpo_trainer/bagel/README.md"
LINK = "docs/examples/bagel/flowgrpo_trainer_bagel.md"
TESTS = "tests/pipelines/test_bagel_flow_grpo_on_cpu.py"
BOOKS = {f"{PACKAGE}/scaffold.lock.toml", "verl_omni.patch", README}


def differing(first: dict[str, Any], second: dict[str, Any]) -> set[str]:
    """Return the paths that are not the same in both trees."""
    return {path for path in first.keys() | second.keys() if first.get(path) != second.get(path)}


def parts(path: Path) -> dict[str, str]:
    """Return the text of each import, function, method and class header of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {
        "imports": "\n".join(sorted(ast.unparse(n) for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)))
    }
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                name = getattr(item, "name", "body")
                found[f"{node.name}.{name}"] = found.get(f"{node.name}.{name}", "") + ast.unparse(item)
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = ast.unparse(node)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            found["module"] = found.get("module", "") + ast.unparse(node)
    return found


def changed_parts(first: Path, second: Path) -> set[str]:
    before, after = parts(first), parts(second)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_main_and_the_release_before_it(release_trees: dict[str, Path], tree_of: Callable[[Path], Any]) -> None:
    old, new = release_trees["v0.2.0"], release_trees["main"]
    changed = differing(tree_of(old), tree_of(new))
    # Scripts may follow: a release without a hook for LoRA needs a worker class of the package, named to the engine.
    scripts = {path for path in changed if path.endswith(".sh")}
    assert changed - scripts == {*BOOKS, ROLLOUT, TESTS, WORKER}
    assert not (new / WORKER).exists()
    assert changed_parts(old / ROLLOUT, new / ROLLOUT) <= {
        "imports",
        "BagelPipelineWithLogProb.body",
    }
    # Tests of the worker class come on top; those that both have differ in how a result is read.
    shared = parts(old / TESTS).keys() & parts(new / TESTS).keys()
    assert changed_parts(old / TESTS, new / TESTS) & shared <= {
        "roll_out",
        "imports",
        "module",
        "test_the_ids_that_the_pipeline_embeds_reach_training",
    }


def test_the_two_releases(release_trees: dict[str, Path], tree_of: Callable[[Path], Any]) -> None:
    old, new = release_trees["v0.1.0"], release_trees["v0.2.0"]
    changed = differing(tree_of(old), tree_of(new))
    scripts = {path for path in changed if path.endswith(".sh")}
    assert changed - scripts == {*BOOKS, LINK, ROLLOUT, TESTS, WORKER}
    # The engine of the older one binds every LoRA target itself.
    assert changed_parts(old / ROLLOUT, new / ROLLOUT) <= {"imports", "BagelPipelineWithLogProb.body"}


@pytest.mark.parametrize("release", ["v0.1.0", "v0.2.0", "main"])
def test_what_training_must_know_is_the_same_everywhere(release_trees: dict[str, Path], release: str) -> None:
    for name in ("__init__.py", "common.py", "bagel_model.py"):
        same = (release_trees["main"] / PACKAGE / name).read_text()
        assert (release_trees[release] / PACKAGE / name).read_text() == same


@pytest.mark.parametrize("release", ["v0.1.0", "v0.2.0", "main"])
def test_each_release_has_its_result_its_lora_and_its_steps(release_trees: dict[str, Path], release: str) -> None:
    text = (release_trees[release] / ROLLOUT).read_text()
    assert f"results.{'enveloped' if release == 'main' else 'in_custom_output'}" in text
    assert ("FoldingRollout" in text) == (release != "v0.1.0")
    assert ("more_steps=-1" in text) == (release == "v0.1.0")


@pytest.mark.parametrize("release", ["v0.1.0", "v0.2.0", "main"])
def test_training_without_lora_is_restricted_where_the_readme_says_so(
    release_trees: dict[str, Path], release: str
) -> None:
    tree = release_trees[release]
    if "With `lora_rank=0` the parameters whose names contain" in " ".join((tree / README).read_text().split()):
        assert "    trainable = (" in (tree / TRAINING).read_text()


@pytest.mark.parametrize("release", ["v0.1.0", "v0.2.0", "main"])
def test_example_and_smoke_script_do_not_ask_for_what_the_adapter_refuses(
    release_trees: dict[str, Path], release: str
) -> None:
    tree = release_trees[release]
    if "train without LoRA" not in (tree / TRAINING).read_text():
        return
    for path in tree.rglob("*.sh"):
        ranks = re.findall(r"lora_rank=(\S+)", path.read_text())
        assert all(rank == "0" for rank in ranks), path.name


def test_lora_without_a_hook_goes_through_a_worker_class_that_both_scripts_name(
    release_trees: dict[str, Path],
) -> None:
    tree = release_trees["v0.2.0"]
    option = "+actor_rollout_ref.rollout.engine_kwargs.vllm_omni.worker_extension_cls="
    for script in ("examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh", "tests/special_e2e/run_flowgrpo_bagel.sh"):
        text = (tree / script).read_text()
        (name,) = re.findall(re.escape(option) + r"(\S+)", text)
        module, _, cls = name.rpartition(".")
        found = ast.parse((tree / f"{module.replace('.', '/')}.py").read_text())
        (node,) = [item for item in found.body if isinstance(item, ast.ClassDef)]
        assert node.name == cls
        assert [item.name for item in node.body if isinstance(item, ast.FunctionDef)] == ["add_lora"]
        assert int(re.findall(r"lora_rank=(\d+)", text)[0]) > 0
        for other in ("v0.1.0", "main"):
            assert option not in (release_trees[other] / script).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("release", ["v0.1.0", "v0.2.0", "main", "v0.3.0"])
def test_rendered_tests_pass_under_the_kit(
    release_trees: dict[str, Path], kit_passes: Callable[..., None], release: str
) -> None:
    kit_passes(release_trees[release], release)


@pytest.mark.slow
def test_rendered_tests_fail_under_the_kit_of_another_release(
    release_trees: dict[str, Path], kit_passes: Callable[..., None]
) -> None:
    with pytest.raises(AssertionError, match=r"diffusion_rollout_output|rollout_output|request_batch"):
        kit_passes(release_trees["main"], "v0.1.0")


def test_any_release_of_vllm_omni_with_any_profile(rendered: Callable[..., Path]) -> None:
    text = (rendered("bagel", "--profile", "main", "--vllm-omni", "0.22.0") / ROLLOUT).read_text()
    assert "more_steps=-1" in text
    assert "results.enveloped" in text


@pytest.mark.parametrize("release", ["v0.1.0", "v0.2.0", "main", "v0.3.0"])
def test_profile_alone_brings_its_pin(
    rendered: Callable[..., Path], release_trees: dict[str, Path], tree_of: Callable[[Path], Any], release: str
) -> None:
    assert tree_of(rendered("bagel", "--profile", release)) == tree_of(release_trees[release])


def test_later_diffusers_that_has_the_model_is_a_note(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    command = ("new", "qwen_image_21", "--vllm-omni", "0.32.0rc1", "--patch", "--out", tmp_path / "out", "--dry-run")
    printed = scaffold_cli(*command).success()
    assert "note: diffusers 0.42.1 has the model QwenImage21Transformer2DModel, " in printed
    assert "but this version pins 0.40.0: where diffusers loads the checkpoint, its path is the easier one\n" in printed


@pytest.mark.parametrize(
    ("options", "grade"),
    [
        (("--vllm-omni", "0.27.0rc1"), "complete"),
        (("--vllm-omni", "0.28.0"), "unproven"),
        (("--vllm-omni", "0.22.0", "--profile", "v0.1.0"), "unproven"),
        (("--vllm-omni", "0.24.0", "--profile", "v0.2.0"), "unproven"),
    ],
)
def test_complete_rests_on_versions_that_were_run(
    rendered: Callable[..., Path], options: tuple[str, ...], grade: str
) -> None:
    tree = rendered("bagel", *options)
    assert read_spec(tree / PACKAGE / "scaffold.toml").spec.value("grade.value") == grade
    readme = " ".join((tree / README).read_text(encoding="utf-8").split())
    said = f"no test has run `verify --level rollout` with this code of vllm-omni {options[1]}"
    assert ("**This integration is unproven**" in readme, said in readme) == (grade == "unproven",) * 2
    named = re.search(r"; with vllm-omni ([^;]*) it is complete", readme)
    assert (named is not None) == (grade == "unproven" and len(options) == 2)
    assert named is None or "0.27.0rc1" in named[1].split(" and ")
