"""Every package that the tool calls complete, in one checkout: the target's own pre-commit hooks, as far as they need
no network; what is wired; what packages have in common.
"""

from __future__ import annotations

import ast
import collections
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaffold.grade.proof import proofs
from scaffold.new import NewRequest, plan_new
from scaffold.render.formats.python import ruff_binary
from scaffold.render.names import model_name

VERSION = "0.30.0"
CHECKOUT = os.environ.get("VERL_OMNI_SRC", "")
COMPLETE = sorted({proven.partition(" ")[0] for proven in proofs()[VERSION]})
RUFF = {"ruff": ("check", "--no-fix"), "ruff-format": ("format", "--check")}
# One fetches an environment, one imports hydra and the trainer that it makes a configuration of.
NOT_OFFLINE = {"mypy", "autogen-trainer-cfg"}
pytestmark = [
    pytest.mark.upstream,
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKOUT, reason="VERL_OMNI_SRC names no verl-omni checkout"),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return verl-omni with every complete package in it."""
    root = tmp_path_factory.mktemp("hooks") / "verl-omni"
    shutil.copytree(CHECKOUT, root, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    for pipeline in COMPLETE:
        request = NewRequest(
            f"{model_name(pipeline)}_x",
            pipeline=pipeline,
            vllm_omni=VERSION,
            verl_omni=str(root),
            allow_version_mismatch=True,
        )
        plan_new(request).plan.commit()
    for command in (("init", "--quiet"), ("add", "--all")):  # one hook asks git which files there are
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def hooks(root: Path) -> dict[str, tuple[str | None, list[str]]]:
    """Return each hook of the checkout with the release that it wants and its command."""
    document: dict[str, Any] = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())
    found: dict[str, tuple[str | None, list[str]]] = {}
    for repository in document["repos"]:
        for hook in repository["hooks"]:
            if hook["id"] in RUFF:
                command, *flags = RUFF[hook["id"]]
                found[hook["id"]] = (repository["rev"], [ruff_binary(), command, "--no-cache", *flags, "."])
            elif hook["id"] not in NOT_OFFLINE:
                found[hook["id"]] = (None, ["bash", "-c", hook["entry"]])
    return found


def test_every_hook_passes_on_every_complete_package(checkout: Path) -> None:
    wanted = hooks(checkout)
    assert set(wanted) >= {*RUFF, "check-docs-time-info", "check-docstrings", "check-license", "validate-structure"}
    assert len(list((checkout / "verl_omni/pipelines").glob("*_x_flow_grpo"))) == len(COMPLETE) >= 13
    said = []
    for name, (release, command) in wanted.items():
        if release is not None:
            have = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
            assert have.split()[1] == release.removeprefix("v"), f"{name} wants another ruff"
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        if done.returncode:
            said.append(f"{name}: {(done.stdout + done.stderr)[-2000:]}")
    assert not said, "\n".join(said)


def test_every_package_is_complete_and_check_says_only_that_it_is_of_another_version(
    checkout: Path, scaffold_cli: Callable[..., Any]
) -> None:
    found = json.loads(scaffold_cli("check", *packages(checkout), "--format", "json").out)["findings"]
    assert {finding["rule"] for finding in found} <= {"OSC530", "OSC531"}, found
    for package in packages(checkout):
        assert 'value = "complete"' in (package / "scaffold.lock.toml").read_text(encoding="utf-8"), package.name


def test_no_file_is_let_off_as_a_whole(checkout: Path) -> None:
    """A line that is as upstream wrote it may say so; a file may not."""
    packages = (checkout / "verl_omni/pipelines").glob("*_x_flow_grpo/*.py")
    assert [path.name for path in packages if "# ruff: noqa" in path.read_text(encoding="utf-8")] == []


def packages(root: Path) -> list[Path]:
    return sorted((root / "verl_omni/pipelines").glob("*_x_flow_grpo"))


def ported(package: Path) -> bool:
    """Whether its training module is vllm-omni's or diffusers' own, of which no script here makes a checkpoint."""
    return any(package.glob("*_denoiser.py")) or not any(package.glob("*_model.py"))


def test_what_asks_for_a_checkpoint_is_not_wired(checkout: Path) -> None:
    """A smoke script asks for MODEL_PATH, which no CI has, or builds its own checkpoint and is called by the runner."""
    runner = (checkout / "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh").read_text(encoding="utf-8")
    for package in packages(checkout):
        model = package.name.removesuffix("_flow_grpo")
        script = f"tests/special_e2e/run_flowgrpo_{model}.sh"
        asks = "${MODEL_PATH:?" in (checkout / script).read_text(encoding="utf-8")
        builds = (checkout / f"tests/special_e2e/build_{model}_tiny_random.py").is_file()
        recorded = (checkout / f"tests/special_e2e/{model}_tiny_random.json").is_file()
        assert asks == (script not in runner) == (not builds), model
        assert builds == (recorded or not ported(package)), model
        assert recorded == (model == "omni_gen2_x"), model


def test_every_package_is_known_to_the_page_of_models_and_to_the_groups(checkout: Path) -> None:
    page = (checkout / "docs/start/models.md").read_text(encoding="utf-8")
    groups = (checkout / "tests/gpu_smoke/select_gpu_smoke_groups.py").read_text(encoding="utf-8")
    for package in packages(checkout):
        model = package.name.removesuffix("_flow_grpo")
        (script,) = (checkout / f"examples/flowgrpo_trainer/{model}").glob("run_*.sh")
        assert page.count(f"`{script.relative_to(checkout)}`") == 1
        assert groups.count(f'        "examples/flowgrpo_trainer/{model}/**",\n') == 1


def test_registered_names_say_omni_once_and_are_spelled_like_the_pipeline(checkout: Path) -> None:
    names = {
        name
        for package in packages(checkout)
        for name in re.findall(r'register\(\s*"(\w+)"', (package / "vllm_omni_rollout_adapter.py").read_text("utf-8"))
    }
    assert len(names) == len(COMPLETE)
    assert {"OmniGen2XForConditionalGeneration", "OmniBagelXForConditionalGeneration"} <= names
    assert [name for name in names if len(re.findall("omni", name, re.IGNORECASE)) != 1] == []


RUN = 8
# Ported model code, the pipeline's own scheduler and its own loop: each is one version's text.
MODEL_CODE = ("_denoiser.py", "_schedule.py", "_loop.py")
# What stays equal, by file, with the packages: statements about a model, not code that could be in one place.
FAMILY = "names of one denoiser of diffusers, which several pipelines call"
DECLARED = {
    "common.py": {
        ("bagel", "lance"): "values of one rule of guidance, which both pipelines have",
        ("qwen_image_edit", "qwen_image_edit_plus"): "what diffusers' class of both does without",
    },
    "diffusers_training_adapter.py": {
        ("hunyuan_video15", "hunyuan_video15_image_to_video"): FAMILY,
        ("hi_dream_o1_image", "sense_nova_u1"): "arguments of each module's forward, which `check` compares with it",
    },
    "vllm_omni_rollout_adapter.py": {
        ("flux2", "flux2_klein"): FAMILY,
        ("hunyuan_video15", "hunyuan_video15_image_to_video"): FAMILY,
        ("long_cat_image", "long_cat_image_edit"): FAMILY,
        ("qwen_image", "qwen_image_edit", "qwen_image_edit_plus"): FAMILY,
        ("sana_image_to_video", "sana_video"): FAMILY,
    },
    "_model.py": {
        (
            "bagel",
            "lance",
        ): "modules of one family: their names in the checkpoint, the order of their calls",
        ("hi_dream_o1_image", "sense_nova_u1"): "sizes of one language model",
    },
}


def own_files(package: Path) -> list[Path]:
    """Return the modules of a package beside its model code."""
    model = package.name.removesuffix("_flow_grpo")
    apart = {model + end for end in MODEL_CODE}
    return [path for path in sorted(package.glob("*.py")) if path.name not in apart]


def content(path: Path) -> list[str]:
    """Return the lines that say something of a module: no license, no imports, no headers of functions.

    The license is the same by rule, imports name what is shared, and a method that overrides one has its header.
    """
    text = path.read_text(encoding="utf-8")
    apart: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            apart |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.FunctionDef):
            apart |= set(range(node.lineno, node.body[0].lineno))
    lines = list(enumerate(text.splitlines(), start=1))
    first = next((number for number, line in lines if line and not line.startswith("#")), len(lines))
    return [line.strip() for number, line in lines if number >= first and number not in apart and line.strip()]


def test_no_eight_lines_in_a_row_stand_in_two_packages(checkout: Path) -> None:
    """What could be in one place is in the runtime; denoisers, ported schedulers and loops are model code."""
    found: dict[tuple[str, ...], set[tuple[str, str]]] = collections.defaultdict(set)
    for package in packages(checkout):
        for path in own_files(package):
            lines, kind = content(path), "_model.py" if path.name.endswith("_model.py") else path.name
            for at in range(len(lines) - RUN + 1):
                found[tuple(lines[at : at + RUN])].add((kind, package.name.removesuffix("_x_flow_grpo")))
    equal: dict[str, set[tuple[str, ...]]] = collections.defaultdict(set)
    example = {}
    for run, places in found.items():
        models = tuple(sorted({model for _, model in places}))
        if len(models) > 1:
            for kind, _ in places:
                within = next((known for known in DECLARED.get(kind, {}) if set(models) <= set(known)), models)
                equal[kind].add(within)
                example[kind, within] = run
    new = {key: run for key, run in example.items() if key[1] not in DECLARED.get(key[0], {})}
    assert not new, "\n".join(
        f"{kind} of {', '.join(models)}:\n" + "\n".join(run) for (kind, models), run in new.items()
    )
    gone = [(kind, models) for kind, known in DECLARED.items() for models in known if models not in equal[kind]]
    assert not gone, f"no longer equal, take them off the list: {gone}"


def test_a_package_is_small_beside_its_denoiser(checkout: Path) -> None:
    """Lines of Python beside the denoiser, the ported scheduler and the ported loop, blank ones included.

    A composed package has its model in them.
    """
    sizes = {}
    for package in packages(checkout):
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in own_files(package))
        sizes[package.name] = lines, 480 if ported(package) else 620
    assert all(lines <= most for lines, most in sizes.values()), sizes
