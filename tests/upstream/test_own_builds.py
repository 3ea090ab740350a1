"""A pipeline beside vllm-omni, and builds of one's own: found, told from every release, kept and found again."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.upstream import locate, resolve_pipeline
from scaffold.upstream.at_hand import at_hand
from scaffold.upstream.builds import base_of, is_own
from scaffold.upstream.identity import identified
from scaffold.upstream.own_pipeline import beside_again, with_own_pipeline

REGISTRY = '_DIFFUSION_MODELS = {"Lamp": ("lamp", "pipeline_lamp", "Lamp")}\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tree(root: Path, registry: str = REGISTRY) -> Path:
    """Write a small vllm-omni 7.0."""
    files = {
        "vllm_omni/__init__.py": "",
        "vllm_omni/_version.py": "version = '7.0'\n",
        "vllm_omni/diffusion/registry.py": registry,
        "vllm_omni/diffusion/models/lamp/pipeline_lamp.py": "class Lamp: ...\n",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def wheel(root: Path, into: Path) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    file = into / "vllm_omni-7.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted(root.rglob("*.py")):
            archive.write(path, path.relative_to(root).as_posix())
    return file


def own(root: Path) -> Path:
    """Write a package with a pipeline of its own."""
    (root / "lantern").mkdir(parents=True)
    (root / "lantern" / "__init__.py").touch()
    (root / "lantern" / "pipe.py").write_text("class Lantern: ...\n")
    return root / "lantern" / "pipe.py"


def test_a_pipeline_is_found_by_its_file_in_the_folder_that_is_read_or_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own(tmp_path / "mine")
    plain = locate(str(tree(tmp_path / "tree")))
    source, name = with_own_pipeline(plain, f"{file}:Lantern")
    assert name == "lantern.pipe:Lantern"
    assert source.packages == ("vllm_omni", "lantern")
    target = resolve_pipeline(source, name)
    assert (target.module, target.class_name, target.registry_keys) == ("lantern.pipe", "Lantern", ())
    with pytest.raises(ScaffoldError, match=r"has no module lantern\.pipe"):
        resolve_pipeline(*with_own_pipeline(plain, name))
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    assert resolve_pipeline(*with_own_pipeline(plain, name)) == target
    own(tmp_path / "tree")
    monkeypatch.setattr(sys, "path", [])
    beside = locate(str(tmp_path / "tree"))
    assert resolve_pipeline(*with_own_pipeline(beside, name)) == target
    assert with_own_pipeline(plain, "Lamp") == (plain, "Lamp")


@pytest.mark.parametrize(
    ("pipeline", "told"), [("none/pipe.py:A", "is not a file"), ("loose.py:A", "lies in no package")]
)
def test_a_file_that_no_package_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loose.py").touch()
    with pytest.raises(ScaffoldError, match=told):
        with_own_pipeline(locate(str(tree(tmp_path / "tree"))), pipeline)


def test_what_holds_the_code_of_a_release_is_that_release(tmp_path: Path, cache: Path) -> None:
    wheel(tree(tmp_path / "tree"), cache / "wheels")
    assert identified(locate(str(tmp_path / "tree"))).version == "7.0"
    assert identified(locate(str(wheel(tmp_path / "tree", tmp_path / "here")))).version == "7.0"
    assert not (cache / "builds").exists()


def test_a_fork_has_a_version_of_its_own_and_is_found_by_it(tmp_path: Path, cache: Path) -> None:
    wheel(tree(tmp_path / "tree"), cache / "wheels")
    fork = tree(tmp_path / "My_Fork", REGISTRY.replace("}", ', "Mine": ("lamp", "pipeline_lamp", "Lamp")}'))
    version = str(identified(locate(str(fork))).version)
    assert version.startswith("7.0+my.fork.g")
    assert is_own(version)
    assert base_of(version) == "7.0"
    assert identified(locate(str(wheel(fork, tmp_path / "here")))).version != "7.0"
    found, again = locate(version), at_hand(version)
    assert again is not None
    assert resolve_pipeline(found, "Mine").class_name == "Lamp" == resolve_pipeline(again, "Mine").class_name
    assert found.version == version
    (fork / "vllm_omni/diffusion/models/lamp/pipeline_lamp.py").write_text("class Lamp:\n    x = 1\n")
    assert identified(locate(str(fork))).version != version


def test_a_build_that_was_not_kept_is_never_taken_for_its_release(tmp_path: Path, cache: Path) -> None:
    wheel(tree(tmp_path / "tree"), cache / "wheels")
    assert at_hand("7.0+my.fork.g01234567") is None
    with pytest.raises(ScaffoldError, match="a build of somebody's own, which this machine has not kept"):
        locate("7.0+my.fork.g01234567")
    assert at_hand("7.0+cu129") is not None


def test_a_pipeline_beside_a_release_is_kept_without_the_release(tmp_path: Path, cache: Path) -> None:
    wheel(tree(tmp_path / "tree"), cache / "wheels")
    source, name = with_own_pipeline(locate("7.0"), f"{own(tmp_path / 'mine')}:Lantern")
    version = str(identified(source).version)
    assert version.startswith("7.0+lantern.g")
    assert sorted(path.name for path in (cache / "builds" / version).iterdir()) == ["lantern", "omni-scaffold.json"]
    (tmp_path / "mine" / "lantern" / "pipe.py").unlink()
    assert resolve_pipeline(locate(version), name).module == "lantern.pipe"


def test_a_folder_without_a_version_is_read_and_has_no_environment(
    tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    (tree(tmp_path / "tree") / "vllm_omni/_version.py").unlink()
    assert identified(locate(str(tmp_path / "tree"))).version is None
    said = scaffold_cli("env", "rollout", "--vllm-omni", tmp_path / "tree").refusal()
    assert "gives no version of itself; write the release that it comes from into vllm_omni/_version.py" in said


def test_an_edited_pipeline_is_found_where_one_stands_and_its_absence_is_said(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel(tree(tmp_path / "tree"), cache / "wheels")
    file = own(tmp_path / "mine")
    source, name = with_own_pipeline(locate("7.0"), f"{file}:Lantern")
    kept = locate(str(identified(source).version))
    file.write_text("class Lantern: ...\n\n\nEDITED = True\n")
    monkeypatch.chdir(tmp_path / "mine")
    assert "EDITED" in beside_again(locate("7.0"), name, kept).read("lantern/pipe.py")
    assert capsys.readouterr().err == ""
    monkeypatch.chdir(tmp_path)
    assert "EDITED" not in beside_again(locate("7.0"), name, kept).read("lantern/pipe.py")
    assert "lantern is neither on the path of Python nor in this folder" in capsys.readouterr().err


def test_lines_of_an_own_pipeline_are_shown(tmp_path: Path, cache: Path, scaffold_cli: Callable[..., Any]) -> None:
    wheel(tree(tmp_path / "tree"), cache / "wheels")
    file = own(tmp_path / "mine")
    done = scaffold_cli("inspect", f"{file}:Lantern", "--vllm-omni", "7.0", "--show", "detail.pipeline.class")
    assert "class Lantern" in done.success()
