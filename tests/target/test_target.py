"""Checkouts are recognised by what their files define. The stand-ins below are small and written for this test."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.errors import ScaffoldError
from scaffold.target import Checkout, ContractProfile, default_profile, profile_by_name, profile_for_checkout, profiles
from scaffold.target.pin import vllm_omni_asked, vllm_omni_pin
from scaffold.target.profile import FOLDER
from scaffold.target.request_limits import AGENT_LOOP, REQUEST, SERVER, STRATEGY

REAL = os.environ.get("VERL_OMNI_SRC")
RELEASES = {"v0.1.0": "v0.1.0", "v0.2.0": "v0.2.0", "main": "HEAD"}


def standin(root: Path, name: str) -> Path:
    """Write the smallest folder that has the shape of a release."""
    profile = profile_by_name(name)
    hooks = "".join(f"    @classmethod\n    def {hook}(cls, *args): ...\n" for hook in profile.hooks)
    batch = "            subclass.supports_request_batch = False\n" if profile.request_batch_default else ""
    files = {
        "verl_omni/pipelines/__init__.py": "from . import (\n    one,\n)\n",
        "verl_omni/pipelines/model_base.py": (
            f"class DiffusionModelBase:\n    registry = {{}}\n{hooks}\n\nclass VllmOmniPipelineBase:\n"
            f"    def register(cls):\n        def decorator(subclass):\n{batch}            return subclass\n"
        ),
        "verl_omni/pipelines/non_diffusers_model_base.py": "class NonDiffusersModelBase: ...\n",
        "pyproject.toml": f'[project.optional-dependencies]\nx = ["vllm==1", "vllm-omni=={profile.vllm_omni}"]\n',
        profile.smoke_runner or "": 'run_test() { :; }\nrun_test 0 "a" \\\n    bash a.sh\n',
    }
    if profile.rollout_result == "rollout_output":
        files["verl_omni/pipelines/diffusion_rollout_output.py"] = "def rollout_output(*, media): ...\n"
    if profile.logprob_difference:
        files["verl_omni/trainer/diffusion/rollout_correction.py"] = 'KEY = "rollout_corr/logprob_abs_diff_max"\n'
    if profile.lora_hook:
        files["verl_omni/utils/sync.py"] = 'hook = getattr(None, "map_lora_update_to_engine", None)\n'
    if profile.worker_extension:
        module, _, name = profile.worker_extension.rpartition(".")
        files[f"{module.replace('.', '/')}.py"] = f"class {name}: ...\n"
    if profile.docs_link:
        files["docs/index.md"] = "# x\n\n```{toctree}\n:maxdepth: 2\n:caption: Examples\n\nexamples/a.md\n```\n"
        files["docs/examples/a.md"] = "a\n"
    if profile.smoke_groups:
        files[profile.smoke_groups] = (
            'X = 1\nGROUP_PATTERNS = {\n    "ci-e2e-diffusion": (\n        "a/**",\n    ),\n}\n'
        )
    if profile.models_page:
        files[profile.models_page] = "# x\n\n## Diffusion Image Models\n\n## Diffusion Video Models\n"
    if profile.docs_link_check:
        files["tests/special_sanity/check_example_docs_symlinks.py"] = ""
    files["verl_omni/version/version"] = f"{profile.version}\n"
    files["verl_omni/trainer/config/diffusion_trainer.yaml"] = f"trainer:\n  use_v1: {str(profile.use_v1).lower()}\n"
    if profile.v1_entry_point:
        files[f"{profile.v1_entry_point.replace('.', '/')}.py"] = ""
    if profile.lora_merge:
        files["verl_omni/trainer/config/diffusion/model/diffusion_model.yaml"] = "lora:\n  merge: false\n"
    if profile.io_spec:
        files[f"{profile.io_spec.replace('.', '/')}.py"] = "class DiffusionIOSpec:\n    primary: object\n"
    files |= rollout(profile)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


RESULT = "def result(final_res):\n    if final_res is None or not final_res.images:\n        return None\n"
LOOP = "async def run(self, ids):\n    return await self.server_manager.generate(prompt_ids=ids, sampling_params={})\n"


def rollout(profile: ContractProfile) -> dict[str, str]:
    """Files of the rollout: a server that does all by itself, or one that is split."""
    (key,) = profile.request_ids
    if key == "prompt_token_ids":
        return {SERVER: f"def prompt(ids):\n    custom_prompt = {{{key!r}: ids}}\n\n\n{RESULT}", AGENT_LOOP: LOOP}
    return {
        SERVER: "",
        STRATEGY: (
            "def preprocess_input(request, stage):\n    custom_prompt = dict(request.to_diffusion_prompt())\n"
            "    if stage:\n        custom_prompt['prompt_token_ids'] = custom_prompt.pop('prompt_ids')\n\n\n" + RESULT
        ),
        REQUEST: (
            "class OmniRolloutRequest:\n    prompt: object\n    media: tuple\n\n"
            f"    def to_diffusion_prompt(self):\n        made = {{{key!r}: self.prompt}}\n"
            "        made['multi_modal_data'] = self.media\n        return made\n"
        ),
        AGENT_LOOP: LOOP.replace("prompt_ids=ids", "request=ids"),
    }


@pytest.mark.parametrize("name", [*RELEASES, "v0.3.0"])
def test_each_shape_gives_its_profile(tmp_path: Path, name: str) -> None:
    checkout = Checkout.open(standin(tmp_path, name))
    assert checkout.profile == profile_by_name(name)
    assert checkout.vllm_omni_pin == profile_by_name(name).vllm_omni
    assert checkout.notes == ()


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.skipif(not REAL, reason="VERL_OMNI_SRC names no verl-omni checkout")
def test_real_releases_give_their_profile(tmp_path: Path, name: str) -> None:
    git = ["git", "-c", "advice.detachedHead=false"]
    subprocess.run([*git, "clone", "-q", "--shared", "--no-checkout", str(REAL), str(tmp_path / "x")], check=True)
    commit = subprocess.run(
        ["git", "-C", str(REAL), "rev-parse", RELEASES[name]], capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run([*git, "-C", str(tmp_path / "x"), "checkout", "-q", commit], check=True)
    checkout = Checkout.open(tmp_path / "x")
    assert checkout.profile == profile_by_name(name)
    assert checkout.profile.limits == profile_by_name(name).limits
    assert checkout.vllm_omni_pin == profile_by_name(name).vllm_omni
    assert checkout.notes == ()


def test_no_pin_of_ours_is_a_peft_that_packages_refuse() -> None:
    """The refusal stands in the profiles; what we install and what the packages ask for must agree with it."""
    from packaging.requirements import Requirement

    root = Path(__file__).resolve().parents[2]
    below = profiles()[-1].peft_below
    assert below is not None
    optional = tomli.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = [line for lines in optional.values() for line in lines if line.startswith("peft")]
    for file in sorted((root / "scaffold/verify").rglob("environments/*.toml")):
        asked += [line for line in tomli.loads(file.read_text())["constraints"]["pins"] if line.startswith("peft")]
    assert len(asked) > 2
    assert not [line for line in asked if Requirement(line).specifier.contains(below)]


def test_the_files_decide_not_the_pin(tmp_path: Path) -> None:
    root = standin(tmp_path, "v0.1.0")
    (root / "pyproject.toml").write_text('[project]\ndependencies = ["vllm_omni[x] == 0.30.0"]\n')
    checkout = Checkout.open(root)
    assert checkout.profile.name == "v0.1.0"
    assert checkout.vllm_omni_pin == "0.30.0"
    assert checkout.notes == ("the checkout pins vllm-omni 0.30.0; verl-omni v0.1.0 pins 0.22.0",)


def test_an_unknown_shape_is_the_nearest_profile_corrected(tmp_path: Path) -> None:
    root = standin(tmp_path, "main")
    (root / "verl_omni/pipelines/diffusion_rollout_output.py").write_text("# rollout_output moved\n")
    (root / "verl_omni/utils/sync.py").write_text('"""map_lora_update_to_engine is gone."""\n')
    checkout = Checkout.open(root)
    assert checkout.profile.name == "main"
    assert checkout.profile.rollout_result == "custom_output"
    assert checkout.profile.lora_hook is False
    assert "a rollout returns custom_output" in checkout.notes[0]
    assert "LoRA hook is missing" in checkout.notes[0]


def test_a_difference_that_the_trainer_does_not_report_is_seen(tmp_path: Path) -> None:
    root = standin(tmp_path, "main")
    (root / "verl_omni/trainer/diffusion/rollout_correction.py").write_text("KEY = None\n")
    checkout = Checkout.open(root)
    assert checkout.profile.logprob_difference is False
    assert "the difference of log-probs in the trainer's metrics is missing" in checkout.notes[0]


def test_a_worker_class_that_is_gone_is_none(tmp_path: Path) -> None:
    root = standin(tmp_path, "v0.2.0")
    (root / "verl_omni/workers/rollout/vllm_rollout/utils.py").write_text("vLLMOmniColocateWorkerExtension = None\n")
    checkout = Checkout.open(root)
    assert checkout.profile.worker_extension is None
    assert "the class that extends rollout workers is missing" in checkout.notes[0]


def test_what_a_checkout_carries_by_now_is_no_limit(tmp_path: Path) -> None:
    root = standin(tmp_path, "main")
    (root / SERVER).write_text(
        "def prompt(prompt_ids, hidden):\n"
        "    custom_prompt = {'prompt_token_ids': prompt_ids, 'hidden': hidden}\n"
        "    return custom_prompt\n\n\n" + RESULT
    )
    (root / AGENT_LOOP).write_text(LOOP.replace("prompt_ids=ids", "prompt_ids=ids, observation=1"))
    checkout = Checkout.open(root)
    assert checkout.profile.limits == {"images_only": f"{SERVER}:7"}
    assert checkout.notes == ()


def test_limits_are_found_after_the_server_was_split(tmp_path: Path) -> None:
    root = standin(tmp_path, "v0.3.0")
    profile = Checkout.open(root).profile
    assert profile.limits == {
        "token_prompts": f"{REQUEST}:6",
        "images_only": f"{STRATEGY}:8",
        "prompt_only": f"{AGENT_LOOP}:2",
    }
    assert profile.request_ids == ("prompt_ids",)
    (root / REQUEST).write_text(
        (root / REQUEST).read_text().replace("media: tuple", "media: tuple\n    observation: object")
    )
    assert "prompt_only" not in Checkout.open(root).profile.limits


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (REQUEST, "", "a request carries more than token ids could be neither found nor ruled out"),
        (STRATEGY, "class DiffusionStrategy: ...\n", "results without images are taken could be neither"),
        (
            AGENT_LOOP,
            "def run(self, **more):\n    self.server_manager.generate(**more)\n",
            "sends more than the prompt",
        ),
    ],
)
def test_a_limit_that_is_not_settled_is_said_and_is_no_support(tmp_path: Path, file: str, text: str, said: str) -> None:
    root = standin(tmp_path, "v0.3.0")
    (root / file).write_text(text)
    checkout = Checkout.open(root)
    assert set(checkout.profile.limits) == {"token_prompts", "images_only", "prompt_only"}
    assert any(said in note and "it counts as not carried" in note for note in checkout.notes)


def test_media_that_are_taken_by_name_alone_are_said(tmp_path: Path) -> None:
    root = standin(tmp_path, "v0.3.0")
    (root / "verl_omni/pipelines/rollout_media.py").write_text("class DiffusionIOSpec:\n    artifacts: dict\n")
    checkout = Checkout.open(root)
    assert checkout.profile.io_spec is None
    assert any("refuses bare images" in note for note in checkout.notes)


def test_v1_that_is_switched_on_in_the_configuration_is_the_entry_point(tmp_path: Path) -> None:
    root = standin(tmp_path, "main")
    (root / "verl_omni/trainer/config/diffusion_trainer.yaml").write_text("trainer:\n  use_v1: true\n")
    checkout = Checkout.open(root)
    assert checkout.profile.use_v1
    assert checkout.profile.entry_point == checkout.profile.v1_entry_point == "verl_omni.trainer.main_diffusion_v1"
    assert "trainer.use_v1 is true by default" in checkout.notes[0]


def test_a_checkout_newer_than_every_profile_is_said_to_be_that(
    tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    root = standin(tmp_path, "v0.3.0")
    (root / "verl_omni/version/version").write_text("0.4.0.dev\n")
    (root / "pyproject.toml").write_text('[project]\ndependencies = ["vllm-omni==0.30.0"]\n')
    base = root / "verl_omni/pipelines/model_base.py"
    hook = "    @classmethod\n    def build_engine_hooks(cls, module): ...\n"
    base.write_text(base.read_text().replace("registry = {}\n", f"registry = {{}}\n\n{hook}"))
    checkout = Checkout.open(root)
    assert checkout.title == (
        "verl-omni newer than every profile (it is 0.4.0.dev; it pins vllm-omni 0.30.0; it has the hook"
        " build_engine_hooks), nearest to verl-omni v0.3.0"
    )
    (note,) = checkout.notes
    assert note.startswith(f"the checkout is {checkout.title} and differs: ")
    assert "DiffusionModelBase has build_engine_hooks, which no profile knows" in note
    package = root / "verl_omni/pipelines/one"
    package.mkdir()
    (package / "__init__.py").write_text("from verl_omni.pipelines.model_base import DiffusionModelBase\n")
    assert f"{note}\n" in scaffold_cli("check", root).err
    (root / "verl_omni/version/version").write_text("0.3.0\n")
    (root / "pyproject.toml").write_text('[project]\ndependencies = ["vllm-omni==0.28.0rc1"]\n')
    base.write_text(base.read_text().replace(hook, ""))
    assert scaffold_cli("check", root).err == ""


def test_every_value_of_a_profile_that_was_not_run_says_where_it_was_read() -> None:
    file = tomli.loads((FOLDER / "v0.3.0.toml").read_text())
    sketch = {"docs_index", *file["sketch"]}
    named = {"vllm_omni", "diffusers", "pins", *file["contract"], *file["limits"], *file["layout"], *sketch}
    assert set(file["evidence"]) == named
    assert all(how.startswith("read: ") or how == "assumed" for how in file["evidence"].values())
    for profile in profiles()[:-1]:
        assert profile.evidence["all"].startswith("run: ")


def test_a_runner_that_is_gone_is_none(tmp_path: Path) -> None:
    root = standin(tmp_path, "main")
    (root / "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh").unlink()
    assert profile_for_checkout(root).smoke_runner is None


@pytest.mark.parametrize(
    ("requirement", "pin"),
    [
        ('[project]\ndependencies = ["vllm-omni>=0.2"]\n', None),
        ('[project]\ndependencies = ["vllm-omni==0.27.0rc1 ; extra"]\n', "0.27.0rc1"),
        ('[dependency-groups]\na = [{include-group = "b"}, "vllm.omni===0.24.0"]\n', "0.24.0"),
        ('[project\ndependencies = [\n    "vllm-omni==0.22.0",\n', "0.22.0"),
        ('[project]\ndependencies = ["my-vllm-omni==9"]\n', None),
        ('[project]\ndependencies = ["vllm-omni==0.27.*"]\n', None),
    ],
)
def test_pins_of_all_spellings(tmp_path: Path, requirement: str, pin: str | None) -> None:
    root = standin(tmp_path, "main")
    (root / "pyproject.toml").write_text(requirement)
    assert Checkout.open(root).vllm_omni_pin == pin


@pytest.mark.parametrize(
    "text",
    [
        "[project]\ndependencies = 5\n",
        "[project]\noptional-dependencies = { a = true, b = { c = 1 } }\n[dependency-groups]\nd = 1.5\n",
        "project = 1\n",
    ],
)
def test_a_pyproject_of_other_kinds_pins_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert vllm_omni_pin(tmp_path) is None
    assert vllm_omni_asked(tmp_path) is None


def test_requirements_file_serves_where_pyproject_is_silent(tmp_path: Path) -> None:
    root = standin(tmp_path, "main")
    (root / "pyproject.toml").unlink()
    (root / "requirements-gpu.txt").write_text("torch\nvllm-omni==0.24.0  # pinned\n")
    assert Checkout.open(root).vllm_omni_pin == "0.24.0"


NO_CHECKOUT = {
    "empty": ({}, "it has no verl_omni/pipelines/__init__.py"),
    "no class": (
        {
            "verl_omni/pipelines/__init__.py": "",
            "verl_omni/pipelines/model_base.py": "x = 1\n",
            "verl_omni/pipelines/non_diffusers_model_base.py": "class NonDiffusersModelBase: ...\n",
        },
        "defines no DiffusionModelBase",
    ),
    "not Python": (
        {
            "verl_omni/pipelines/__init__.py": "",
            "verl_omni/pipelines/model_base.py": "class (:\n",
            "verl_omni/pipelines/non_diffusers_model_base.py": "",
        },
        "defines no DiffusionModelBase",
    ),
}


@pytest.mark.parametrize("case", NO_CHECKOUT)
def test_other_folders_are_refused(tmp_path: Path, case: str) -> None:
    files, message = NO_CHECKOUT[case]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with pytest.raises(ScaffoldError, match=message) as caught:
        Checkout.open(tmp_path)
    assert caught.value.exit_code == 2


def test_a_file_or_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "nothing"):
        with pytest.raises(ScaffoldError, match="not a folder"):
            Checkout.open(tmp_path / path)


def test_opening_runs_nothing(tmp_path: Path) -> None:
    root = standin(tmp_path, "main")
    for path in ("verl_omni/pipelines/model_base.py", "verl_omni/utils/sync.py", "setup.py"):
        with (root / path).open("a") as file:
            file.write(f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    Checkout.open(root)
    assert not (tmp_path / "ran").exists()


def test_profiles_are_ordered_and_named() -> None:
    assert [profile.name for profile in profiles()] == ["v0.1.0", "v0.2.0", "main", "v0.3.0"]
    assert default_profile().vllm_omni == "0.27.0rc1"
    with pytest.raises(ScaffoldError, match=r"there are v0\.1\.0, v0\.2\.0, main, v0\.3\.0"):
        profile_by_name("v9")


def test_target_section_of_the_spec() -> None:
    assert profile_by_name("main").context("toy")["docs_link"] == "docs/examples/toy/flowgrpo_trainer_toy.md"
    section = profile_by_name("v0.1.0").context("toy")
    assert section["docs_link"] is None
    assert section["rollout_result"] == "custom_output"
    assert section["smoke_runner"] == "tests/gpu_smoke/run_gpu_smoke_tests.sh"
