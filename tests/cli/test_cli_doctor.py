"""`doctor` names what is there, what is wrong and the command that mends it; each mistake below is a real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from scaffold.doctor import examine
from scaffold.target import profile_by_name

STATES = {"ok", "absent", "wrong"}


@pytest.fixture
def checkout(tmp_path: Path, python_file: Callable[[Path, str], Any]) -> Path:
    """A small folder of the shape of verl-omni's main."""
    module = python_file(Path(__file__).parents[1] / "target" / "test_target.py", "stand_in_checkout")
    root: Path = module.standin(tmp_path / "verl-omni", "main")
    return root


@pytest.fixture
def doctor(scaffold_child: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, dict[str, Any]]]:
    """Run the command away from the Hub; its findings by name."""

    def run(*arguments: object, code: int = 0, **environment: str | None) -> dict[str, dict[str, Any]]:
        settings = {"HF_HUB_OFFLINE": "1", "VERL_OMNI_SRC": None, "VERL_SRC": None, **environment}
        cwd = settings.pop("cwd", None) or tmp_path
        outcome = scaffold_child("doctor", *arguments, "--format", "json", cwd=cwd, **settings)
        assert outcome.code == code, outcome.out + outcome.err
        answer = json.loads(outcome.out)
        assert answer["schema"] == 1
        assert all(set(finding) == set(answer["findings"][0]) for finding in answer["findings"])
        assert {finding["state"] for finding in answer["findings"]} <= STATES
        return {finding["name"]: finding for finding in answer["findings"]}

    return run


def installed_beside(folder: Path, name: str, version: str) -> Path:
    """Put the description of a distribution where Python looks first."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def test_libraries_are_those_of_the_verify_extra(doctor: Callable[..., Any]) -> None:
    found = doctor()
    asked = [line for line in metadata.requires("omni-scaffold") or () if "extra == 'verify'" in line]
    assert len(asked) > 4
    for line in asked:
        name = line.partition(";")[0].partition("<")[0].partition(">")[0].strip()
        assert name in found, name


def test_a_peft_that_packages_refuse_is_wrong_and_the_command_installs_another(
    doctor: Callable[..., Any], checkout: Path, tmp_path: Path
) -> None:
    path = installed_beside(tmp_path / "site", "peft", "0.21.2")
    for arguments in ((), (checkout,)):
        found = doctor(*arguments, code=1, path=f"{Path(__file__).parents[2]}:{path}")["peft"]
        assert (found["state"], found["found"]) == ("wrong", "0.21.2")
        below = profile_by_name("main").peft_below
        assert found["mend"].startswith("pip install 'peft<")
        assert f"<{below}" in found["mend"]


def test_a_missing_library_is_absent_and_no_failure(doctor: Callable[..., Any]) -> None:
    if list(metadata.distributions(name="vllm-omni")):
        pytest.skip("vllm-omni is installed here")
    found = doctor()["vllm-omni"]
    assert (found["state"], found["found"]) == ("absent", None)
    assert found["mend"].startswith("pip install vllm-omni==")


@pytest.mark.parametrize("gpu", [True, False])
def test_a_missing_torch_is_the_cpu_build_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, gpu: bool) -> None:
    version = metadata.version

    def installed(name: str) -> str:
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", installed)
    monkeypatch.setattr(
        "shutil.which", lambda name, *_, **__: "/bin/nvidia-smi" if gpu and name == "nvidia-smi" else None
    )
    if not gpu and any(Path(device).exists() for device in ("/dev/nvidia0", "/dev/kfd")):
        pytest.skip("there is a GPU")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (found,) = (finding for finding in examine(None) if finding.name == "torch")
    assert found.state == "absent"
    assert (found.mend or "").endswith("/whl/cpu") == (not gpu)


def test_another_vllm_omni_than_the_pinned_one_is_wrong(
    doctor: Callable[..., Any], checkout: Path, tmp_path: Path
) -> None:
    path = f"{Path(__file__).parents[2]}:{installed_beside(tmp_path / 'site', 'vllm-omni', '0.22.0')}"
    found = doctor(checkout, code=1, path=path)["vllm-omni"]
    pin = profile_by_name("main").vllm_omni
    assert (found["problem"], found["mend"]) == (f"the checkout pins {pin}", f"pip install vllm-omni=={pin}")
    assert doctor(path=path)["vllm-omni"]["state"] == "ok", "without a checkout nothing pins another"


def test_checkout_is_found_above_the_folder_one_stands_in(doctor: Callable[..., Any], checkout: Path) -> None:
    inside = checkout / "verl_omni" / "pipelines"
    assert doctor(cwd=inside)["verl-omni"]["found"].startswith(profile_by_name("main").title)
    assert doctor()["verl-omni"]["mend"].startswith("git clone ")
    assert doctor(VERL_OMNI_SRC=str(checkout))["verl-omni"]["state"] == "ok"


def test_a_folder_that_is_no_checkout_is_refused(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    assert "is not a verl-omni checkout" in scaffold_cli("doctor", tmp_path).refusal()


def test_environments_of_an_empty_cache_are_absent_with_the_command(
    doctor: Callable[..., Any], checkout: Path, tmp_path: Path
) -> None:
    cache = str(tmp_path / "cache")
    found = doctor(OMNI_SCAFFOLD_CACHE=cache, OMNI_SCAFFOLD_ROLLOUT_ENV=None)
    environments = [name for name in found if name.startswith("environment-")]
    assert len(environments) > 1
    for name in environments:
        version = name.removeprefix("environment-")
        assert found[name]["mend"] == f"omni-scaffold env rollout --vllm-omni {version}"
        assert found[name]["state"] == "absent"
    pinned = doctor(checkout, OMNI_SCAFFOLD_CACHE=cache, OMNI_SCAFFOLD_ROLLOUT_ENV=None)
    assert [name for name in pinned if name.startswith("environment-")] == [
        f"environment-{profile_by_name('main').vllm_omni}"
    ]


def test_a_cache_that_cannot_be_one_is_wrong(doctor: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert doctor(code=1, OMNI_SCAFFOLD_CACHE=str(tmp_path / "file"))["cache"]["problem"] == "cannot be written"


def test_a_damaged_wheel_is_wrong_and_the_command_fetches_it(doctor: Callable[..., Any], tmp_path: Path) -> None:
    wheel = tmp_path / "cache" / "wheels" / "vllm_omni-0.27.0rc1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"PK half a wheel")
    found = doctor(code=1, OMNI_SCAFFOLD_CACHE=str(tmp_path / "cache"))["vllm-omni-source"]
    assert found["state"] == "wrong"
    assert f"{wheel} is not a readable wheel" in found["problem"]
    assert found["mend"] == "omni-scaffold list --vllm-omni 0.27.0rc1"


def test_a_verl_that_is_none_is_wrong(doctor: Callable[..., Any], tmp_path: Path) -> None:
    found = doctor(code=1, VERL_SRC=str(tmp_path))["verl"]
    assert (found["state"], found["mend"]) == ("wrong", "unset VERL_SRC")


def test_a_hub_that_answers_nothing_is_absent(doctor: Callable[..., Any]) -> None:
    found = doctor(HF_HUB_OFFLINE=None, HF_ENDPOINT="http://127.0.0.1:9")["hub"]
    assert (found["state"], found["found"]) == ("absent", None)


def test_fix_says_why_an_environment_cannot_be_built(
    scaffold_child: Callable[..., Any], checkout: Path, tmp_path: Path
) -> None:
    outcome = scaffold_child("doctor", checkout, "--fix", OMNI_SCAFFOLD_ROLLOUT_ENV=str(tmp_path))
    assert "no environment is built" in outcome.refusal()


def test_text_names_the_command_on_one_line(scaffold_child: Callable[..., Any], tmp_path: Path) -> None:
    cache = {"OMNI_SCAFFOLD_CACHE": str(tmp_path / "c"), "OMNI_SCAFFOLD_ROLLOUT_ENV": None, "VERL_OMNI_SRC": None}
    said = scaffold_child("doctor", cwd=tmp_path, COLUMNS="60", HF_HUB_OFFLINE="1", **cache).success()
    assert "        run: omni-scaffold env rollout --vllm-omni 0.30.0\n" in said
    assert said.splitlines()[-1].endswith(" wrong")
